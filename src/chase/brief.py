"""The answers that must come at once: ``--version`` and ``--help`` of every command, without loading what runs need."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from chase import __version__

ABOUT = "Federated active learning: CHASe, other methods to compare it with, and a labelling page."
COMMANDS = {
    "run": "Run federated active learning on a preset, a TOML file or your own data.",
    "resume": "Resume a run or a comparison that was stopped.",
    "show": "Show one run as a table.",
    "report": "Compare any number of runs on one self-contained HTML page.",
    "export": "Write the model of a run as files that do not need chase.",
    "predict": "Predict the class of images, texts or rows of a table.",
    "evaluate": "Measure a run's model on labelled data of your own.",
    "demo": "Compare the recommended method with CHASe and random selection.",
    "list": "List presets, data sets, strategies, networks and settings; or explain one setting.",
    "watch": "Watch a run or a study in the terminal.",
    "label": "Serve the labelling page of a client's home; export and import labels.",
    "data": "Data sets: list, fetch and inspect them.",
    "study": "Run an experiment of the paper; list, export and publish them.",
    "site": "Create a site from its own data, maintain it, and connect it to a federation.",
    "federation": "Create a federation of sites, serve it and run it; or try it on one machine.",
}
"""Every command with a line about it; a test compares the names with those that there are."""


HELP = Path(__file__).with_name("help.json")
"""What ``chase COMMAND --help`` says, by command; written by ``python -m chase.cli.help_texts``."""


def answer(arguments: Sequence[str]) -> str | None:
    """What to print for these arguments, None if they ask for more than that."""
    if list(arguments) == ["--version"]:
        return f"chase {__version__}"
    if not arguments or arguments[-1] != "--help":
        return None
    if len(arguments) > 1:
        found: str | None = json.loads(HELP.read_text(encoding="utf-8")).get(" ".join(arguments[:-1]))
        return found
    width = max(len(name) for name in COMMANDS) + 2
    commands = "\n".join(f"  {name:{width}}{about}" for name, about in COMMANDS.items())
    return (
        f"Usage: chase [OPTIONS] COMMAND [ARGS]...\n\n  {ABOUT}\n\nOptions:\n  --version  Show the version and exit.\n"
        f"  --help     Show this message and exit.\n\nCommands:\n{commands}\n\n"
        "First steps: chase run digits; chase run PATH, for a folder of images or a CSV file of your own.\n"
        "Help on a command: chase COMMAND --help."
    )
