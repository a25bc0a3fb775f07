"""Measured ratios: `make bench`. Absolute seconds depend on the machine; ratios of one run do not."""
