"""A run: the loop, its record, its checkpoint."""
