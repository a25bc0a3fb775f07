"""Hand-written training steps and inference for small convolutional networks and perceptrons, on a CPU.

The same mathematics as the plain path (autograd), proven against it in the tests, more than twice
as fast at a batch of ten (``python -m benchmarks.steps``):

* A convolution followed by 2x2 max-pooling is one family of matrix products. A pooling window of a
  k x k convolution needs a (k+1) x (k+1) patch, so the four values of the window are a
  (4 * out, (k+1)^2 * in) matrix of shifted weights times the patch; pooling is then the maximum of
  four contiguous slabs.
* With the batch as the innermost dimension the rows of the patches are shifted views, not copies:
  (k+1)/2 accumulating products, and the input gradient accumulates the other way.
* Element-wise dropout at p = 1/2 is an additive mask (0 or -1e30) that the products accumulate on,
  looked up eight floats per random byte. The backward pass never needs the mask: what survives the
  relu was kept. The factor 2 is folded into the next copy or product.
* The momentum of the wide layers is the beta of a matrix product; SGD is one addition on one flat
  vector of parameters.
* A perceptron is the linear layers alone.
* A loss-prediction module (LL4AL) reads the blocks' means and hands their gradients back
  (``FusedRanking``).

``fused_for`` says whether a network can be run this way.
"""

from chase.learning.fused.dense import Prepared, Series, Soft, Watched
from chase.learning.fused.network import Fused, FusedNet, fused_for, fused_since
from chase.learning.fused.predictor import FusedRanking

__all__ = ["Fused", "FusedNet", "FusedRanking", "Prepared", "Series", "Soft", "Watched", "fused_for", "fused_since"]
