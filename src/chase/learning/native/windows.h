/* A convolution with ReLU and 2x2 max-pooling. Included once for each instruction set and number of lanes. */

/* sums[2 * row + column in the window][output] of as many windows as there are lanes */
INLINE void LANED(windows)(const float *x, const float *w, int64_t channels, int k, int64_t plane, int64_t row,
                          int64_t half, int64_t n, int outs, V sums[4][OUTS]) {
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
                    V weight = LANED(all)(w[o]);
                    sums[0][o] += x00 * weight;
                    sums[1][o] += x01 * weight;
                    sums[2][o] += x10 * weight;
                    sums[3][o] += x11 * weight;
                }
            }
        }
    }
}

/* as many windows as there are lanes of `outs` outputs from `o` on -> net->row, and which value was largest */
INLINE void LANED(pooled)(const Net *net, const Convolution *c, const float *x, const float *w, int k, int outs,
                         int64_t o, int64_t r, int64_t lane, int train) {
    int64_t n = net->batch, half = c->width / 2 * n, lanes = c->columns * n;
    V sums[4][OUTS];
    UNROLL
    for (int i = 0; i < outs; i++) sums[0][i] = sums[1][i] = sums[2][i] = sums[3][i] = (V){};
    LANED(windows)(x + lane, w, c->channels, k, c->height * 2 * half, 2 * half, half, n, outs, sums);
    UNROLL
    for (int i = 0; i < outs; i++, o++) {
        if (c->bytes) { /* dropped: below whatever is kept, and 0 after the ReLU where nothing is kept */
            const V gone = LANED(all)(-1e30f);
            int64_t all = c->out * c->rows * lanes, at = (o * c->rows + r) * lanes + lane;
            sums[0][i] = PICK(LANED(bits)(c->bytes, at), sums[0][i], gone);
            sums[2][i] = PICK(LANED(bits)(c->bytes, at + all), sums[2][i], gone);
            sums[1][i] = PICK(LANED(bits)(c->bytes, at + 2 * all), sums[1][i], gone);
            sums[3][i] = PICK(LANED(bits)(c->bytes, at + 3 * all), sums[3][i], gone);
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
            *(LANED(octets) *)(c->chosen + (o * c->rows + r) * c->stride + lane) =
                __builtin_convertvector(where, LANED(octets));
    }
}

/* all outputs of the windows from `lane` on */
INLINE void LANED(outputs)(const Net *net, const Convolution *c, const float *x, int k, int64_t r, int64_t lane,
                           int train) {
    int64_t taps = c->channels * c->kernel * c->kernel, o = 0;
    const float *w = c->packed;
    for (; o + OUTS <= c->out; o += OUTS, w += OUTS * taps) LANED(pooled)(net, c, x, w, k, OUTS, o, r, lane, train);
#if OUTS > 2
    if (o + 2 <= c->out) {
        LANED(pooled)(net, c, x, w, k, 2, o, r, lane, train);
        o += 2, w += 2 * taps;
    }
#endif
    if (o < c->out) LANED(pooled)(net, c, x, w, k, 1, o, r, lane, train);
}
