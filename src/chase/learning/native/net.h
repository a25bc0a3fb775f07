/* What a network is to the kernels: sizes and places in memory that Python has allocated (../fused/compiled_buffers.py).

Shapes, with n samples in a batch; sizes of images contain the padding:

  images          n x (height, width, channels), `image_stride` floats apart      sample after sample
  planes          (channels, height, column parity, width / 2, n)                 the batch innermost
  middle          the same for the second convolution
  middle_images   n x (height, width, channels) of the second convolution
  chosen          (out, rows, stride): which of the four places of a window was largest, 2 * row + column
  flat            n x (out, rows, columns) of the second convolution
  values          n x out of a linear layer

Vectors are read beyond the end of the buffers that are ours; each has `SLACK` floats of room for it. Parameters
and what torch allocates is never read or written beyond its end. */

#include <stdint.h>

typedef struct {
    int64_t channels, height, width, out, kernel, rows, columns;
    int64_t stride; /* columns * n, rounded up to eight */
    const float *weight, *bias; /* (out, kernel, kernel, channels), (out) */
    float *packed;              /* weights as the forward pass reads them */
    float *gradient, *bias_gradient;
    uint8_t *chosen;
    const uint8_t *bytes; /* bits that keep elements: (column, row in the window, out, rows, columns, n); or NULL */
} Convolution;

typedef struct {
    int64_t in, out;
    float *weight, *bias; /* (out, in), (out) */
    float *velocity;
    float *bias_gradient;
    float *values, *gradient;
} Linear;

typedef struct {
    int32_t at;
    float gradient;
} Place; /* a gradient and where its patch begins */

typedef struct {
    int64_t batch, pad, image_stride, linears, small;
    Convolution first, second;
    Linear *linear;
    float *images, *middle, *middle_images, *middle_gradient, *flat, *flat_gradient, *row, *sums, *wide, *dropped;
    const float *planes;
    float *own_planes;
    Place *places, *window_places;
    int64_t *counts;
    const uint8_t *channel_bytes, *unit_bytes; /* bits that keep channels (out, n) or hidden units (n, out), or NULL */
    float *small_theta, *small_velocity;       /* convolutions and biases, `small` floats */
    const float *small_gradient;
    float flat_scale, first_scale, second_scale;
} Net;

typedef struct {
    float rate, momentum, decay;
} Sgd;

/* a teacher's softened outputs, which the labelled samples learn beside their labels */
typedef struct {
    const float *targets; /* (total, classes): softmax(outputs / temperature); NULL: labels alone */
    float weight, temperature;
} Soft;

/* several steps of one size on labelled samples and, with alignment, as many draws of watched ones */
typedef struct {
    int64_t count, labelled, watched; /* steps; samples of each step */
    const float *samples;             /* (total, size of an image) */
    const float *others;              /* (others_total, size of an image) */
    int64_t total, others_total;
    const int64_t *positions, *labels;      /* (count, labelled) */
    const int64_t *picks;                   /* (count, watched): positions among the others */
    const float *directions, *aligned;      /* (others_total, classes), (others_total) */
    const uint8_t *masks;                   /* (count, mask_bytes): all masks of each step */
    uint8_t *masks_to;                      /* where a step reads its masks */
    int64_t mask_bytes;
    double *losses; /* (count) */
    Soft soft;
    float mu;
} Steps;
