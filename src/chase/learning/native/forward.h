/* A convolution with ReLU and 2x2 max-pooling, forward. Included once for each instruction set.

A vector holds neighbours of (column of the pooled map, sample), so no lane is lost whatever the batch. Columns of the
input are stored by parity: the four values of a window are then four sums over shifted vectors, which stay in registers
from the first product to the pooled value. Every sum is taken in one order, whatever the number of lanes and of outputs
at a time: all instruction sets with FMA give the same bits. */

/* how many outputs come next: OUTS while there are as many, then two, then one */
static inline int64_t NAME(together)(int64_t left) { return left >= OUTS ? OUTS : left >= 2 ? 2 : 1; }

/* the weights as `windows` reads them: (outputs together, channel, kernel row, kernel column, output of these) */
static void NAME(pack)(const Convolution *c) {
    int64_t taps = c->kernel * c->kernel;
    float *to = c->packed;
    for (int64_t o = 0, some; o < c->out; o += some) {
        some = NAME(together)(c->out - o);
        for (int64_t i = 0; i < c->channels; i++)
            for (int64_t t = 0; t < taps; t++)
                for (int64_t p = o; p < o + some; p++) *to++ = c->weight[(p * taps + t) * c->channels + i];
    }
}

INLINE void NAME(row_of)(const Net *net, const Convolution *c, const float *input, int k, int64_t r, int train) {
    const float *x = input + 2 * r * c->width * net->batch;
    int64_t lane = 0;
#ifdef WIDE
    for (; lane + 8 < c->columns * net->batch; lane += 16) NAME(outputs_16)(net, c, x, k, r, lane, train);
#endif
    for (; lane < c->columns * net->batch; lane += 8) NAME(outputs_8)(net, c, x, k, r, lane, train);
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
                int64_t b = 0;
                for (; b + 8 <= n; b += 8) STORE(to + b, LOAD(from + b) * scale);
                for (; b < n; b++) to[b] = scale * from[b];
            }
        if (keep)
            for (int64_t b = 0; b < n; b++)
                for (int64_t c = 0; c < first->columns; c++) {
                    const float *from = net->row + c * n + b;
                    float *image = net->middle_images + b * size + ((r + net->pad) * second->width + c + net->pad) * channels;
                    for (int64_t o = 0; o < channels; o++) image[o] = scale * from[o * first->stride];
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
