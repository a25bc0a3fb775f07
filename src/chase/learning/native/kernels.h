/* All kernels for one instruction set: TARGET and NAME say which. */

#include "vectors.h"
#include "forward.h"
#include "backward.h"
#include "linear.h"

TARGET static void NAME(forward)(const Net *net, int train, int keep_middle) {
    if (net->planes == net->own_planes)
        NAME(lay_out)(&net->first, net->images, net->image_stride, net->batch, net->own_planes);
    NAME(front)(net, train, keep_middle);
    NAME(linears)(net);
}

/* `blocks`: of the first convolution (count, channels) per place, of the second, then of the hidden layers */
TARGET static void NAME(backward)(const Net *net, const Sgd *sgd, const float *const *blocks, int64_t count) {
    NAME(linears_backward)(net, sgd, count ? blocks + 2 : blocks, count);
    const Convolution *c = &net->second;
    int64_t places = c->rows * c->columns, size = c->height * c->width;
    for (int64_t i = 0; i < count * c->out; i++)
        for (int64_t w = 0; w < places; w++) net->flat_gradient[i * places + w] += blocks[1][i];
    NAME(second_backward)(net);
    for (int64_t s = 0; s < count; s++)
        for (int64_t i = 0; i < size; i++)
            for (int64_t o = 0; o < c->channels; o++)
                net->middle_gradient[(s * size + i) * c->channels + o] += net->first_scale * blocks[0][s * c->channels + o];
    NAME(first_backward)(net);
    NAME(small_step)(net, sgd);
}

#undef V
#undef I
#undef LOAD
#undef STORE
#undef UNROLL
#undef INLINE
#undef PICK
