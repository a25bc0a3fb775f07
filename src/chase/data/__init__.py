"""Data sets, resident in memory, and how they are divided among clients."""
