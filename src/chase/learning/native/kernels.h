/* All kernels for one instruction set: TARGET and NAME say which. OUTS: outputs of a convolution that are summed at a
time; WIDE: vectors of sixteen floats in the forward pass of convolutions, and nothing else but what it needs. */

#define V LANED(floats)
#define I LANED(ints)
#define LOAD(p) (*(const V *)(p))
#define STORE(p, v) (*(V *)(p) = (v))
#define UNROLL _Pragma("GCC unroll 8")
#define INLINE static inline __attribute__((always_inline)) TARGET

/* a where the mask is set, else b */
#define PICK(mask, a, b) ((V)(((mask) & (I)(a)) | (~(mask) & (I)(b))))

#ifdef WIDE
#define LANES 16
#define LANED(x) NAME(x##_16)
#include "vectors.h"
#include "windows.h"
#undef LANES
#undef LANED
#endif
#define LANES 8
#define LANED(x) NAME(x##_8)
#include "vectors.h"
#include "windows.h"
#include "forward.h"
#ifndef WIDE
#include "backward.h"
#include "linear.h"

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
#endif

#undef V
#undef I
#undef LOAD
#undef STORE
#undef UNROLL
#undef INLINE
#undef PICK
#undef LANES
#undef LANED
