/* Forward and backward passes and SGD of small convolutional networks, on one thread.

Built without Python.h and called through ctypes (kernel.py). All memory belongs to the caller and there is no
state here, so several threads and forked processes can compute at once. Everything is compiled twice: for processors
with AVX2 and FMA, and for any other; the forward pass of convolutions also for those with AVX-512, with the same bits
as with AVX2. `path` says which is used, `best_path` which one this machine has. */

#include <math.h>
#include <string.h>

#include "net.h"

#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)
#define HAS_AVX2 1
#define OUTS 2
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) x##_avx2
#include "kernels.h"
#undef TARGET
#undef NAME
#undef OUTS

#define WIDE 1
#define OUTS 4
#define TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
#define NAME(x) x##_avx512
#include "kernels.h"
#undef TARGET
#undef NAME
#undef OUTS
#undef WIDE
#endif

#define OUTS 2
#define TARGET
#define NAME(x) x##_any
#include "kernels.h"
#undef OUTS

#ifdef HAS_AVX2
#define CALL(name, path, ...) ((path) ? name##_avx2(__VA_ARGS__) : name##_any(__VA_ARGS__))
#define CALL_WIDE(name, path, ...) ((path) == 2 ? name##_avx512(__VA_ARGS__) : CALL(name, path, __VA_ARGS__))
#else
#define CALL(name, path, ...) ((void)(path), name##_any(__VA_ARGS__))
#define CALL_WIDE CALL
#endif

#define EXPORT __attribute__((visibility("default")))

#ifndef CHASE_SOURCES
#define CHASE_SOURCES "unknown"
#endif

/* the hash of the sources that this was built from: what was built from others is not used */
EXPORT const char *chase_sources(void) { return CHASE_SOURCES; }

/* 2: AVX-512 (of the year 2017: F, VL, DQ, BW), 1: AVX2 and FMA, 0: any processor */
EXPORT int64_t chase_best_path(void) {
#ifdef HAS_AVX2
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")
               ? 2
               : 1;
#else
    return 0;
#endif
}

/* rows of samples (total, height * width * channels) -> images from `first` on; -1 where a position is none of them */
EXPORT int64_t chase_fill(const Net *net, const float *samples, int64_t total, const int64_t *positions, int64_t count,
                          int64_t first) {
    int64_t size = net->first.height * net->first.width * net->first.channels;
    for (int64_t i = 0; i < count; i++) {
        if (positions[i] < 0 || positions[i] >= total) return -1;
        memcpy(net->images + (first + i) * net->image_stride, samples + positions[i] * size, size * sizeof(float));
    }
    return 0;
}

/* weights as the forward pass reads them, for several passes with the same parameters */
EXPORT void chase_pack(const Net *net, int64_t path) {
    CALL_WIDE(pack, path, &net->first);
    CALL_WIDE(pack, path, &net->second);
}

static void forward(const Net *net, int64_t path, int train, int keep_middle) {
    if (net->planes == net->own_planes)
        CALL_WIDE(lay_out, path, &net->first, net->images, net->image_stride, net->batch, net->own_planes);
    CALL_WIDE(front, path, net, train, keep_middle);
    CALL(linears, path, net);
}

/* images, or planes that are ready, -> logits; with `train` all that a backward pass needs */
EXPORT void chase_forward(const Net *net, int64_t path, int64_t train, int64_t keep_middle) {
    forward(net, path, (int)train, (int)keep_middle);
}

/* the gradient of the logits -> parameters after a step of SGD */
EXPORT void chase_backward(const Net *net, int64_t path, const Sgd *sgd, const float *const *blocks, int64_t count) {
    CALL(backward, path, net, sgd, blocks, count);
}

/* the gradient of the loss at the logits; returns the loss, or -1 where a label is no class.

Cross-entropy of the first `labelled` samples; of the others mu * the mean over the aligned of softplus(<f / |f|, D>).
`picks`: which rows of `directions` and `aligned` are theirs; NULL: the first ones. With `soft` the labelled also learn
its rows `positions` (NULL: the first ones):
(1 - weight) * cross-entropy + weight * temperature^2 * KL(targets || softmax(z / temperature)). */
EXPORT double chase_loss(const Net *net, int64_t labelled, const int64_t *labels, const float *directions,
                         const float *aligned, const int64_t *picks, float mu, const Soft *soft,
                         const int64_t *positions) {
    const Linear *last = net->linear + net->linears - 1;
    int64_t classes = last->out, watched = directions ? net->batch - labelled : 0;
    double loss = 0.0;
    for (int64_t s = 0; s < labelled; s++) {
        if (labels[s] < 0 || labels[s] >= classes) return -1.0;
        const float *z = last->values + s * classes;
        float *g = last->gradient + s * classes, most = z[0], sum = 0.0f;
        for (int64_t c = 1; c < classes; c++) most = z[c] > most ? z[c] : most;
        for (int64_t c = 0; c < classes; c++) sum += g[c] = expf(z[c] - most);
        for (int64_t c = 0; c < classes; c++) g[c] /= sum;
        double entropy = log(fmaxf(g[labels[s]], 1e-30f)) / (double)labelled;
        g[labels[s]] -= 1.0f;
        if (soft && soft->targets) {
            const float *t = soft->targets + (positions ? positions[s] : s) * classes;
            const float w = soft->weight, heat = soft->temperature;
            double apart = 0.0;
            float softened = 0.0f;
            for (int64_t c = 0; c < classes; c++) softened += expf((z[c] - most) / heat);
            for (int64_t c = 0; c < classes; c++) {
                float p = expf((z[c] - most) / heat) / softened;
                if (t[c] > 0.0f) apart += t[c] * (log(t[c]) - ((z[c] - most) / heat - log(softened)));
                g[c] = (1.0f - w) * g[c] + w * heat * (p - t[c]);
            }
            entropy = (1.0 - w) * entropy - w * heat * heat * apart / (double)labelled;
        }
        loss -= entropy;
        for (int64_t c = 0; c < classes; c++) g[c] /= (float)labelled;
    }
    float total = 0.0f;
    for (int64_t s = 0; s < watched; s++) total += aligned[picks ? picks[s] : s];
    for (int64_t s = 0; s < watched; s++) {
        int64_t row = picks ? picks[s] : s;
        const float *f = last->values + (labelled + s) * classes, *d = directions + row * classes;
        float *g = last->gradient + (labelled + s) * classes, norm = 0.0f, along = 0.0f;
        for (int64_t c = 0; c < classes; c++) norm += f[c] * f[c];
        norm = fmaxf(sqrtf(norm), 1e-12f);
        for (int64_t c = 0; c < classes; c++) along += f[c] / norm * d[c];
        float share = aligned[row] / fmaxf(total, 1.0f), factor = mu * share / (1.0f + expf(-along)) / norm;
        for (int64_t c = 0; c < classes; c++) g[c] = factor * (d[c] - f[c] / norm * along);
        loss += (double)(mu * share) * (fmax(along, 0.0) + log1p(exp(-fabs(along))));
    }
    return loss;
}

/* several steps; -1 where a position is no sample, -2 where a label is no class: steps before that one are done */
EXPORT int64_t chase_steps(const Net *net, int64_t path, const Sgd *sgd, const Steps *s) {
    for (int64_t i = 0; i < s->count; i++) {
        const int64_t *picks = s->watched ? s->picks + i * s->watched : NULL;
        if (chase_fill(net, s->samples, s->total, s->positions + i * s->labelled, s->labelled, 0)) return -1;
        if (picks && chase_fill(net, s->others, s->others_total, picks, s->watched, s->labelled)) return -1;
        if (s->mask_bytes) memcpy(s->masks_to, s->masks + i * s->mask_bytes, s->mask_bytes);
        chase_pack(net, path);
        chase_forward(net, path, 1, 1);
        s->losses[i] = chase_loss(net, s->labelled, s->labels + i * s->labelled, picks ? s->directions : NULL, s->aligned,
                                  picks, s->mu, &s->soft, s->positions + i * s->labelled);
        if (s->losses[i] == -1.0) return -2;
        chase_backward(net, path, sgd, NULL, 0);
    }
    return 0;
}

/* images (n, channels, rows, columns) -> (n, height, width, channels) with `pad` zeros above and to the left, as far as
the convolution reads them; `to` is zero */
EXPORT void chase_prepare(const Convolution *c, const float *images, int64_t n, int64_t rows, int64_t columns, int64_t pad,
                          float *to) {
    int64_t high = rows < c->height - pad ? rows : c->height - pad, wide = columns < c->width - pad ? columns : c->width - pad;
    for (int64_t s = 0; s < n; s++, images += c->channels * rows * columns, to += c->height * c->width * c->channels)
        for (int64_t y = 0; y < high; y++)
            for (int64_t i = 0; i < c->channels; i++) {
                const float *from = images + (i * rows + y) * columns;
                float *row = to + ((y + pad) * c->width + pad) * c->channels + i;
                for (int64_t x = 0; x < wide; x++) row[x * c->channels] = from[x];
            }
}

/* n images (height, width, channels) -> planes */
EXPORT void chase_lay_out(const Convolution *c, int64_t path, const float *images, int64_t n, float *planes) {
    CALL_WIDE(lay_out, path, c, images, c->height * c->width * c->channels, n, planes);
}

/* passes of one size without dropout; `planes` of each -> logits of all, after `chase_pack` */
EXPORT void chase_passes(const Net *net, int64_t path, const float *const *planes, int64_t count, float *logits) {
    const Linear *last = net->linear + net->linears - 1;
    Net each = *net;
    for (int64_t i = 0; i < count; i++, logits += net->batch * last->out) {
        each.planes = planes[i];
        forward(&each, path, 0, 0);
        memcpy(logits, last->values, net->batch * last->out * sizeof(float));
    }
}
