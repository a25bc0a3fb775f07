"""Who labels, when, and how answers come back."""
