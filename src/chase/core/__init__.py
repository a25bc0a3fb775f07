"""Values that every room speaks: pools, messages, weights, randomness, errors."""
