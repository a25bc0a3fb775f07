"""A client: its state and its turn."""
