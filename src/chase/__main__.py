"""``python -m chase``."""

from chase.cli import main

main()
