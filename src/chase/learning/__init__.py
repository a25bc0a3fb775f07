"""Local training, its losses, epistemic variation and inference."""
