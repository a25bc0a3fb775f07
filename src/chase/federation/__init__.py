"""A real federation: its rules, its rounds over any transport, keys and processes. Knows nothing of Flower's API."""
