/* A convolution with ReLU and 2x2 max-pooling, forward. Included once for each instruction set.

A vector holds eight neighbours of (column of the pooled map, sample), so no lane is lost whatever the batch. Columns of
the input are stored by parity: the four values of a window are then four sums over shifted vectors, which stay in
registers from the first product to the pooled value. */

/* the weights as `windows` reads them: (pair of outputs, channel, kernel row, kernel column, output of the pair) */
static void NAME(pack)(const Convolution *c) {
    int64_t taps = c->kernel * c->kernel;
    float *to = c->packed;
    for (int64_t o = 0; o < c->out; o += 2)
        for (int64_t i = 0; i < c->channels; i++)
            for (int64_t t = 0; t < taps; t++)
                for (int64_t p = o; p < o + 2 && p < c->out; p++) *to++ = c->weight[(p * taps + t) * c->channels + i];
}

/* sums[2 * row + column in the window][output] of eight windows */
INLINE void NAME(windows)(const float *x, const float *w, int64_t channels, int k, int64_t plane, int64_t row,
                          int64_t half, int64_t n, int outs, V sums[4][2]) {
    for (int64_t c = 0; c < channels; c++, x += plane) {
        const float *even = x;
        for (int ky = 0; ky < k; ky++, even += row) {
            const float *odd = even + half, *even_below = even + row, *odd_below = odd + row;
            UNROLL
            for (int kx = 0; kx < k; kx++, w += outs) {
                int64_t left = (kx >> 1) * n, right = ((kx + 1) >> 1) * n;
                V x00 = LOAD((kx & 1 ? odd : even) + left), x01 = LOAD((kx & 1 ? even : odd) + right);
                V x10 = LOAD((kx & 1 ? odd_below : even_below) + left);
                V x11 = LOAD((kx & 1 ? even_below : odd_below) + right);
                UNROLL
                for (int o = 0; o < outs; o++) {
                    V weight = NAME(all)(w[o]);
                    sums[0][o] += x00 * weight;
                    sums[1][o] += x01 * weight;
                    sums[2][o] += x10 * weight;
                    sums[3][o] += x11 * weight;
                }
            }
        }
    }
}

/* eight windows of `outs` outputs from `o` on -> net->row, and which value was largest */
INLINE void NAME(pooled)(const Net *net, const Convolution *c, const float *x, const float *w, int k, int outs,
                         int64_t o, int64_t r, int64_t lane, int train) {
    int64_t n = net->batch, half = c->width / 2 * n, lanes = c->columns * n;
    V sums[4][2];
    UNROLL
    for (int i = 0; i < outs; i++) sums[0][i] = sums[1][i] = sums[2][i] = sums[3][i] = (V){};
    NAME(windows)(x + lane, w, c->channels, k, c->height * 2 * half, 2 * half, half, n, outs, sums);
    UNROLL
    for (int i = 0; i < outs; i++, o++) {
        if (c->bytes) { /* dropped: below whatever is kept, and 0 after the ReLU where nothing is kept */
            const V gone = NAME(all)(-1e30f);
            int64_t all = c->out * c->rows * lanes, at = (o * c->rows + r) * lanes + lane;
            sums[0][i] = PICK(NAME(bits)(c->bytes, at), sums[0][i], gone);
            sums[2][i] = PICK(NAME(bits)(c->bytes, at + all), sums[2][i], gone);
            sums[1][i] = PICK(NAME(bits)(c->bytes, at + 2 * all), sums[1][i], gone);
            sums[3][i] = PICK(NAME(bits)(c->bytes, at + 3 * all), sums[3][i], gone);
        }
        V most = sums[0][i];
        I where = {};
        UNROLL
        for (int j = 1; j < 4; j++) { /* of equal values the first, as in torch */
            I more = sums[j][i] > most;
            most = PICK(more, sums[j][i], most);
            if (train) where = (more & j) | (~more & where);
        }
        most += c->bias[o];
        STORE(net->row + o * c->stride + lane, PICK(most < 0, (V){}, most));
        if (train)
            *(NAME(octets) *)(c->chosen + (o * c->rows + r) * c->stride + lane) =
                __builtin_convertvector(where, NAME(octets));
    }
}

INLINE void NAME(row_of)(const Net *net, const Convolution *c, const float *input, int k, int64_t r, int train) {
    const float *x = input + 2 * r * c->width * net->batch;
    int64_t taps = c->channels * c->kernel * c->kernel;
    for (int64_t lane = 0; lane < c->columns * net->batch; lane += 8) {
        const float *w = c->packed;
        int64_t o = 0;
        for (; o + 2 <= c->out; o += 2, w += 2 * taps) NAME(pooled)(net, c, x, w, k, 2, o, r, lane, train);
        if (o < c->out) NAME(pooled)(net, c, x, w, k, 1, o, r, lane, train);
    }
}

/* one row of the pooled map of all outputs and samples -> net->row */
TARGET static void NAME(row)(const Net *net, const Convolution *c, const float *input, int64_t r, int train) {
    if (c->kernel == 5)
        NAME(row_of)(net, c, input, 5, r, train);
    else if (c->kernel == 3)
        NAME(row_of)(net, c, input, 3, r, train);
    else
        NAME(row_of)(net, c, input, (int)c->kernel, r, train);
}

/* n images, `stride` floats apart, -> planes */
static void NAME(lay_out)(const Convolution *c, const float *images, int64_t stride, int64_t n, float *planes) {
    int64_t half = c->width / 2, plane = c->height * c->width * n;
    for (int64_t y = 0; y < c->height; y++) /* what a row of all images becomes stays in the cache meanwhile */
        for (int64_t b = 0; b < n; b++) {
            const float *from = images + b * stride + y * c->width * c->channels;
            float *even = planes + y * c->width * n + b, *odd = even + half * n;
            for (int64_t x = 0; x < half; x++, even += n, odd += n) {
                for (int64_t i = 0; i < c->channels; i++) even[i * plane] = *from++;
                for (int64_t i = 0; i < c->channels; i++) odd[i * plane] = *from++;
            }
        }
}

/* planes -> flat; `keep`: also middle_images */
TARGET static void NAME(front)(const Net *net, int train, int keep) {
    const Convolution *first = &net->first, *second = &net->second;
    int64_t n = net->batch, channels = first->out, half = second->width / 2;
    int64_t size = second->height * second->width * channels, places = second->rows * second->columns;
    float scale = first->bytes ? 2.0f : 1.0f;
    for (int64_t r = 0; r < first->rows; r++) {
        NAME(row)(net, first, net->planes, r, train);
        for (int64_t o = 0; o < channels; o++)
            for (int64_t c = 0; c < first->columns; c++) {
                int64_t y = r + net->pad, x = c + net->pad;
                const float *from = net->row + o * first->stride + c * n;
                float *to = net->middle + (((o * second->height + y) * 2 + (x & 1)) * half + x / 2) * n;
                float *image = net->middle_images + (y * second->width + x) * channels + o;
                for (int64_t b = 0; b < n; b++) to[b] = scale * from[b];
                if (keep)
                    for (int64_t b = 0; b < n; b++) image[b * size] = to[b];
            }
    }
    for (int64_t r = 0; r < second->rows; r++) {
        NAME(row)(net, second, net->middle, r, train);
        for (int64_t o = 0; o < second->out; o++)
            for (int64_t c = 0; c < second->columns; c++) {
                const float *from = net->row + o * second->stride + c * n;
                float *to = net->flat + o * places + r * second->columns + c;
                for (int64_t b = 0; b < n; b++) {
                    int64_t bit = o * n + b;
                    int keeps = !net->channel_bytes || (net->channel_bytes[bit >> 3] >> (7 - (bit & 7)) & 1);
                    to[b * second->out * places] = keeps ? (net->channel_bytes ? 2.0f * from[b] : from[b]) : 0.0f;
                }
            }
    }
}
