"""Which samples are worth a person's time."""
