/* Linear layers and SGD. Included once for each instruction set. Nothing is read beyond the end of a row. */

INLINE float NAME(total)(V v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/* samples x outs products of rows; `in` floats each */
INLINE void NAME(dots)(const float *x, const float *w, int64_t in, int samples, int outs, float *to, int64_t to_stride,
                       const float *bias, float scale) {
    V sums[4][2];
    UNROLL
    for (int s = 0; s < samples; s++) {
        UNROLL
        for (int o = 0; o < outs; o++) sums[s][o] = (V){};
    }
    int64_t i = 0;
    for (; i + 8 <= in; i += 8) {
        V weights[2];
        UNROLL
        for (int o = 0; o < outs; o++) weights[o] = LOAD(w + o * in + i);
        UNROLL
        for (int s = 0; s < samples; s++) {
            V value = LOAD(x + s * in + i);
            UNROLL
            for (int o = 0; o < outs; o++) sums[s][o] += value * weights[o];
        }
    }
    UNROLL
    for (int s = 0; s < samples; s++) {
        UNROLL
        for (int o = 0; o < outs; o++) {
            float sum = NAME(total)(sums[s][o]);
            for (int64_t j = i; j < in; j++) sum += x[s * in + j] * w[o * in + j];
            to[s * to_stride + o] = bias[o] + scale * sum;
        }
    }
}

/* `outs` outputs from o on of all samples: the rows of the weights stay in the cache meanwhile */
INLINE void NAME(linear_outputs)(const Linear *layer, const float *x, int64_t n, float scale, int64_t o, int outs) {
    int64_t s = 0, in = layer->in, out = layer->out;
    const float *w = layer->weight + o * in, *bias = layer->bias + o;
    float *to = layer->values + o;
    for (; s + 4 <= n; s += 4) NAME(dots)(x + s * in, w, in, 4, outs, to + s * out, out, bias, scale);
    if (s + 2 <= n) {
        NAME(dots)(x + s * in, w, in, 2, outs, to + s * out, out, bias, scale);
        s += 2;
    }
    if (s < n) NAME(dots)(x + s * in, w, in, 1, outs, to + s * out, out, bias, scale);
}

/* values = scale * x weight^T + bias */
TARGET static void NAME(linear)(const Linear *layer, const float *x, int64_t n, float scale) {
    int64_t o = 0;
    for (; o + 2 <= layer->out; o += 2) NAME(linear_outputs)(layer, x, n, scale, o, 2);
    if (o < layer->out) NAME(linear_outputs)(layer, x, n, scale, o, 1);
}

/* samples x 8 * vectors of the gradient of the inputs, from sample `first` and column i on */
INLINE void NAME(inputs_block)(const Linear *layer, float *to, int64_t first, int64_t i, int samples, int vectors) {
    int64_t in = layer->in, out = layer->out;
    const float *gradient = layer->gradient + first * out, *w = layer->weight + i;
    V sums[4][2];
    UNROLL
    for (int s = 0; s < samples; s++) {
        UNROLL
        for (int v = 0; v < vectors; v++) sums[s][v] = (V){};
    }
    for (int64_t o = 0; o < out; o++, w += in) {
        V weights[2];
        UNROLL
        for (int v = 0; v < vectors; v++) weights[v] = LOAD(w + 8 * v);
        UNROLL
        for (int s = 0; s < samples; s++) {
            V g = LANED(all)(gradient[s * out + o]);
            UNROLL
            for (int v = 0; v < vectors; v++) sums[s][v] += g * weights[v];
        }
    }
    UNROLL
    for (int s = 0; s < samples; s++) {
        UNROLL
        for (int v = 0; v < vectors; v++) STORE(to + (first + s) * in + i + 8 * v, sums[s][v]);
    }
}

/* 8 * vectors columns from i on for all samples: these columns of the weights stay in the cache meanwhile */
INLINE void NAME(inputs_columns)(const Linear *layer, float *to, int64_t n, int64_t i, int vectors) {
    int64_t s = 0;
    for (; s + 4 <= n; s += 4) NAME(inputs_block)(layer, to, s, i, 4, vectors);
    if (s + 2 <= n) {
        NAME(inputs_block)(layer, to, s, i, 2, vectors);
        s += 2;
    }
    if (s < n) NAME(inputs_block)(layer, to, s, i, 1, vectors);
}

/* the gradient of the layer's inputs (n, in) = gradient weight */
TARGET static void NAME(linear_inputs)(const Linear *layer, float *to, int64_t n) {
    int64_t i = 0, in = layer->in, out = layer->out;
    for (; i + 16 <= in; i += 16) NAME(inputs_columns)(layer, to, n, i, 2);
    for (; i + 8 <= in; i += 8) NAME(inputs_columns)(layer, to, n, i, 1);
    for (; i < in; i++)
        for (int64_t s = 0; s < n; s++) {
            float sum = 0.0f;
            for (int64_t o = 0; o < out; o++) sum += layer->gradient[s * out + o] * layer->weight[o * in + i];
            to[s * in + i] = sum;
        }
}

/* outs x 8 * vectors weights from (o, i) on: momentum, gradient, decay, step */
INLINE void NAME(weights_block)(const Linear *layer, const float *x, int64_t n, float scale, const Sgd *sgd, int64_t o,
                                int64_t i, int outs, int vectors) {
    int64_t in = layer->in, out = layer->out;
    V sums[2][4];
    UNROLL
    for (int p = 0; p < outs; p++) {
        UNROLL
        for (int v = 0; v < vectors; v++) sums[p][v] = (V){};
    }
    for (int64_t s = 0; s < n; s++) {
        V values[4];
        UNROLL
        for (int v = 0; v < vectors; v++) values[v] = LOAD(x + s * in + i + 8 * v);
        UNROLL
        for (int p = 0; p < outs; p++) {
            V gradient = LANED(all)(layer->gradient[s * out + o + p]);
            UNROLL
            for (int v = 0; v < vectors; v++) sums[p][v] += gradient * values[v];
        }
    }
    UNROLL
    for (int p = 0; p < outs; p++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            float *theta = layer->weight + (o + p) * in + i + 8 * v, *speed = layer->velocity + (o + p) * in + i + 8 * v;
            V velocity = LOAD(speed) * LANED(all)(sgd->momentum) + sums[p][v] * LANED(all)(scale);
            velocity += LOAD(theta) * LANED(all)(sgd->decay);
            STORE(speed, velocity);
            STORE(theta, LOAD(theta) - velocity * LANED(all)(sgd->rate));
        }
    }
}

/* one step of SGD on the weights; x (n, in) is what the layer saw, times `scale` */
TARGET static void NAME(linear_weights)(const Linear *layer, const float *x, int64_t n, float scale, const Sgd *sgd) {
    int64_t in = layer->in, o = 0;
    for (; o < layer->out; o += layer->out - o >= 2 ? 2 : 1) {
        int64_t i = 0;
        if (layer->out - o >= 2) {
            for (; i + 32 <= in; i += 32) NAME(weights_block)(layer, x, n, scale, sgd, o, i, 2, 4);
            for (; i + 8 <= in; i += 8) NAME(weights_block)(layer, x, n, scale, sgd, o, i, 2, 1);
        } else
            for (; i + 8 <= in; i += 8) NAME(weights_block)(layer, x, n, scale, sgd, o, i, 1, 1);
        for (int64_t p = o; p < o + 2 && p < layer->out; p++)
            for (int64_t j = i; j < in; j++) {
                float sum = 0.0f, *theta = layer->weight + p * in + j, *speed = layer->velocity + p * in + j;
                for (int64_t s = 0; s < n; s++) sum += layer->gradient[s * layer->out + p] * x[s * in + j];
                *speed = *speed * sgd->momentum + sum * scale + *theta * sgd->decay;
                *theta -= *speed * sgd->rate;
            }
    }
}

/* linear layers with ReLU between them; dropout after the first where there are bits for it */
TARGET static void NAME(linears)(const Net *net) {
    const float *x = net->flat;
    float scale = net->flat_scale;
    int64_t n = net->batch;
    for (int64_t i = 0; i < net->linears; i++, scale = 1.0f) {
        const Linear *layer = net->linear + i;
        NAME(linear)(layer, x, n, scale);
        x = layer->values;
        if (i + 1 == net->linears) break;
        for (int64_t j = 0; j < n * layer->out; j++) layer->values[j] = layer->values[j] < 0.0f ? 0.0f : layer->values[j];
        if (i == 0 && net->unit_bytes) {
            for (int64_t j = 0; j < n * layer->out; j++)
                net->dropped[j] = net->unit_bytes[j >> 3] >> (7 - (j & 7)) & 1 ? 2.0f * layer->values[j] : 0.0f;
            x = net->dropped;
        }
    }
}

/* the gradient of the logits -> flat_gradient; all linear layers take their step.

`blocks`: gradients of what a loss-prediction module read of the first `count` samples: the hidden layers in order. */
TARGET static void NAME(linears_backward)(const Net *net, const Sgd *sgd, const float *const *blocks, int64_t count) {
    int64_t n = net->batch;
    for (int64_t i = net->linears - 1; i >= 0; i--) {
        const Linear *layer = net->linear + i;
        for (int64_t o = 0; o < layer->out; o++) {
            float sum = 0.0f;
            for (int64_t s = 0; s < n; s++) sum += layer->gradient[s * layer->out + o];
            layer->bias_gradient[o] = sum;
        }
        int dropped = i == 1 && net->unit_bytes;
        const float *x = i == 0 ? net->flat : dropped ? net->dropped : layer[-1].values;
        float *to = i == 0 ? net->flat_gradient : layer[-1].gradient;
        NAME(linear_inputs)(layer, to, n);
        if (i > 0) {
            if (dropped)
                for (int64_t j = 0; j < n * layer->in; j++)
                    to[j] = net->unit_bytes[j >> 3] >> (7 - (j & 7)) & 1 ? 2.0f * to[j] : 0.0f;
            if (count)
                for (int64_t j = 0; j < count * layer->in; j++) to[j] += blocks[i - 1][j];
            for (int64_t j = 0; j < n * layer->in; j++) to[j] = layer[-1].values[j] <= 0.0f ? 0.0f : to[j];
        }
        NAME(linear_weights)(layer, x, n, i == 0 ? net->flat_scale : 1.0f, sgd);
    }
}

/* SGD on convolutions and biases, from small_gradient */
TARGET static void NAME(small_step)(const Net *net, const Sgd *sgd) {
    for (int64_t i = 0; i < net->small; i++) {
        float velocity = net->small_velocity[i] * sgd->momentum + net->small_gradient[i] + net->small_theta[i] * sgd->decay;
        net->small_velocity[i] = velocity;
        net->small_theta[i] -= velocity * sgd->rate;
    }
}
