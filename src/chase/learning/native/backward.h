/* The gradients of the two convolutions. Included once for each instruction set.

Of the four values of a window only the largest has a gradient, and only where the ReLU let it through. So the places
that have one are listed first, and the sums go over the list: a patch of the image is `kernel` rows of
kernel * channels neighbouring floats. */

/* sums[row][8 * vector] += gradient * patch, over the list */
INLINE void NAME(gather_block)(const float *images, const Place *list, int64_t count, int64_t stride, int rows,
                               int vectors, float *sums, int64_t sums_stride) {
    V held[5][3];
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++) held[r][v] = LOAD(sums + r * sums_stride + 8 * v);
    }
    for (int64_t i = 0; i < count; i++) {
        const float *patch = images + list[i].at;
        V gradient = LANED(all)(list[i].gradient);
        UNROLL
        for (int r = 0; r < rows; r++) {
            UNROLL
            for (int v = 0; v < vectors; v++) held[r][v] += gradient * LOAD(patch + r * stride + 8 * v);
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++) STORE(sums + r * sums_stride + 8 * v, held[r][v]);
    }
}

TARGET static void NAME(gather)(const Convolution *c, const float *images, const Place *list, int64_t count,
                                float *sums) {
    int64_t stride = c->width * c->channels, vectors = (c->kernel * c->channels + 7) / 8, wide = 8 * vectors, v = 0;
    if (c->kernel == 5) {
        for (; v + 2 <= vectors; v += 2)
            NAME(gather_block)(images + 8 * v, list, count, stride, 5, 2, sums + 8 * v, wide);
        if (v < vectors) NAME(gather_block)(images + 8 * v, list, count, stride, 5, 1, sums + 8 * v, wide);
    } else if (c->kernel == 3) {
        for (; v + 3 <= vectors; v += 3)
            NAME(gather_block)(images + 8 * v, list, count, stride, 3, 3, sums + 8 * v, wide);
        for (; v < vectors; v++) NAME(gather_block)(images + 8 * v, list, count, stride, 3, 1, sums + 8 * v, wide);
    } else
        for (int64_t r = 0; r < c->kernel; r++)
            for (v = 0; v < vectors; v++)
                NAME(gather_block)(images + r * stride + 8 * v, list, count, stride, 1, 1, sums + r * wide + 8 * v, wide);
}

/* two rows of a window's patch += gradient * shifted weights, over the outputs in the list */
INLINE void NAME(spread_block)(const Place *list, int64_t count, const float *weights, int64_t weight_stride,
                               int vectors, float *to, int64_t stride) {
    V upper[5], lower[5];
    UNROLL
    for (int v = 0; v < vectors; v++) upper[v] = LOAD(to + 8 * v), lower[v] = LOAD(to + stride + 8 * v);
    for (int64_t i = 0; i < count; i++) {
        const float *w = weights + list[i].at;
        V gradient = LANED(all)(list[i].gradient);
        UNROLL
        for (int v = 0; v < vectors; v++) {
            upper[v] += gradient * LOAD(w + 8 * v);
            lower[v] += gradient * LOAD(w + weight_stride + 8 * v);
        }
    }
    /* the end of a short row reaches into the one below, which is therefore stored last */
    UNROLL
    for (int v = 0; v < vectors; v++) STORE(to + 8 * v, upper[v]);
    UNROLL
    for (int v = 0; v < vectors; v++) STORE(to + stride + 8 * v, lower[v]);
}

TARGET static void NAME(spread)(const Place *list, int64_t count, const float *weights, int64_t weight_stride,
                                int64_t side, int64_t vectors, float *to, int64_t stride) {
    for (int64_t r = 0; r < side; r += 2, weights += 2 * weight_stride, to += 2 * stride) {
        int64_t v = 0;
        for (; v + 5 <= vectors; v += 5)
            NAME(spread_block)(list, count, weights + 8 * v, weight_stride, 5, to + 8 * v, stride);
        for (; v + 3 <= vectors; v += 3)
            NAME(spread_block)(list, count, weights + 8 * v, weight_stride, 3, to + 8 * v, stride);
        for (; v < vectors; v++)
            NAME(spread_block)(list, count, weights + 8 * v, weight_stride, 1, to + 8 * v, stride);
    }
}

static void NAME(store_sums)(const Convolution *c, const float *sums, int64_t o) {
    int64_t row = c->kernel * c->channels, wide = (row + 7) / 8 * 8;
    for (int64_t r = 0; r < c->kernel; r++)
        memcpy(c->gradient + (o * c->kernel + r) * row, sums + r * wide, row * sizeof(float));
}

/* the gradient where the ReLU let the value through, else 0; without a branch, which could not be predicted */
INLINE float NAME(passed)(float value, float gradient) {
    union {
        float number;
        uint32_t bits;
    } g = {gradient};
    g.bits &= -(uint32_t) !(value <= 0.0f);
    return g.number;
}

/* flat_gradient -> gradients of the second convolution, middle_gradient */
TARGET static void NAME(second_backward)(const Net *net) {
    const Convolution *c = &net->second;
    int64_t n = net->batch, k = c->kernel, side = k + 1, row = c->width * c->channels, size = c->height * row;
    int64_t places = c->rows * c->columns, all = n * places;
    int64_t vectors = (side * c->channels + 7) / 8, stride = c->channels + 8 * vectors, weight = (k + 2) * stride;
    /* weights with a row of zeros above and below and a column of zeros to the left and right of each */
    for (int64_t o = 0; o < c->out; o++)
        for (int64_t r = 0; r < k; r++)
            memcpy(net->wide + o * weight + (r + 1) * stride + c->channels, c->weight + (o * k + r) * k * c->channels,
                   k * c->channels * sizeof(float));
    int64_t *by_output = net->counts, *by_window = net->counts + c->out;
    memset(by_output, 0, c->out * sizeof(int64_t));
    memset(c->bias_gradient, 0, c->out * sizeof(float));
    memset(net->middle_gradient, 0, n * size * sizeof(float));
    for (int64_t b = 0; b < n; b++) {
        const float *value = net->flat + b * c->out * places, *gradient = net->flat_gradient + b * c->out * places;
        memset(by_window, 0, places * sizeof(int64_t));
        for (int64_t o = 0; o < c->out; o++) {
            int64_t count = by_output[o], w = 0;
            Place *list = net->places + o * all;
            float sum = 0.0f;
            for (int64_t r = 0; r < c->rows; r++) {
                const uint8_t *chosen = c->chosen + (o * c->rows + r) * c->stride + b;
                for (int64_t x = 0; x < c->columns; x++, w++, chosen += n) {
                    float g = NAME(passed)(*value++, *gradient * net->second_scale);
                    int64_t down = *chosen >> 1, right = *chosen & 1, some = g != 0.0f;
                    gradient++;
                    list[count].at = (int32_t)(b * size + (2 * r + down) * row + (2 * x + right) * c->channels);
                    list[count].gradient = g;
                    count += some;
                    Place *place = net->window_places + w * c->out + by_window[w];
                    place->at = (int32_t)(o * weight + (1 - down) * stride + (1 - right) * c->channels);
                    place->gradient = g * net->first_scale;
                    by_window[w] += some;
                    sum += g;
                }
            }
            by_output[o] = count;
            c->bias_gradient[o] += sum;
        }
        float *to = net->middle_gradient + b * size;
        for (int64_t w = 0; w < places; w++)
            NAME(spread)(net->window_places + w * c->out, by_window[w], net->wide, stride, side, vectors,
                         to + 2 * (w / c->columns) * row + 2 * (w % c->columns) * c->channels, row);
    }
    for (int64_t o = 0; o < c->out; o++) {
        memset(net->sums, 0, k * ((k * c->channels + 7) / 8 * 8) * sizeof(float));
        NAME(gather)(c, net->middle_images, net->places + o * all, by_output[o], net->sums);
        NAME(store_sums)(c, net->sums, o);
    }
}

/* middle_gradient -> gradients of the first convolution */
TARGET static void NAME(first_backward)(const Net *net) {
    const Convolution *c = &net->first;
    int64_t n = net->batch, row = c->width * c->channels, sums = c->kernel * ((c->kernel * c->channels + 7) / 8 * 8);
    int64_t width = net->second.width, size = net->second.height * width * c->out;
    memset(net->sums, 0, c->out * sums * sizeof(float));
    memset(c->bias_gradient, 0, c->out * sizeof(float));
    for (int64_t b = 0; b < n; b++)
        for (int64_t o = 0; o < c->out; o++) {
            int64_t count = 0;
            float sum = 0.0f;
            for (int64_t r = 0; r < c->rows; r++) {
                int64_t at = b * size + ((r + net->pad) * width + net->pad) * c->out + o;
                const uint8_t *chosen = c->chosen + (o * c->rows + r) * c->stride + b;
                for (int64_t x = 0; x < c->columns; x++, at += c->out, chosen += n) {
                    float g = NAME(passed)(net->middle_images[at], net->middle_gradient[at]);
                    net->places[count].at = (int32_t)((2 * r + (*chosen >> 1)) * row + (2 * x + (*chosen & 1)) * c->channels);
                    net->places[count].gradient = g;
                    count += g != 0.0f;
                    sum += g;
                }
            }
            c->bias_gradient[o] += sum;
            NAME(gather)(c, net->images + b * net->image_stride, net->places, count, net->sums + o * sums);
        }
    for (int64_t o = 0; o < c->out; o++) NAME(store_sums)(c, net->sums + o * sums, o);
}
