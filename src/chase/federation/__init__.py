"""A real federation: its rules, its rounds over any post, its keys and its processes. Knows nothing of Flower's API."""
