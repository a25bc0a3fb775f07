"""Measured ratios: `make bench`. Absolute seconds depend on the machine; ratios of one run do not."""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")  # as the chase command does
