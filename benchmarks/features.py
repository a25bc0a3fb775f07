"""Seconds and memory of patch features: one image, and a client with many samples.

``python benchmarks/features.py [SAMPLES [SIDE [CHANNELS]]]``
prints processor seconds of one thread and the peak memory of the process.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time

import numpy as np
import torch

from chase.closed_form.feature_map import InputSpec, fit
from chase.closed_form.model import ClosedFormNet
from chase.closed_form.patches import Patches
from chase.closed_form.sums import Sums
from chase.data.resident import Samples
from chase.learning.inference import logits


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(count: int = 5_000, side: int = 32, channels: int = 3) -> None:
    torch.set_num_threads(1)
    before = peak_megabytes()
    pixels = np.random.default_rng(0).integers(0, 256, (count, channels, side, side), dtype=np.uint8)
    samples = Samples(torch.from_numpy(pixels))
    feature_map = Patches(InputSpec.of(samples), passes=1)
    params = fit(feature_map, [(samples, torch.arange(min(count, 500)))])
    start = time.process_time()
    feature_map.raw(params, samples, torch.arange(min(count, 500)))
    each = (time.process_time() - start) / min(count, 500)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["CHASE_CACHE"] = cache
        net = ClosedFormNet(feature_map, 10)
        for name in net.params:
            getattr(net, f"feature_{name}").copy_(torch.from_numpy(params[name]))
        logits(net, samples, torch.arange(count))  # as a strategy scores a pool
        Sums.of(net.codes(samples, torch.arange(min(count, 2_000))), np.arange(min(count, 2_000)) % 10, 10)
        peak = peak_megabytes()
    print(f"{side}x{side}x{channels}, {feature_map.filters} filters, {feature_map.width} features")
    print(f"features of one image: {1e3 * each:.2f} ms of one core")
    print(f"client with {count} samples: {peak:.0f} MB at most, {before:.0f} MB of them before any data")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
