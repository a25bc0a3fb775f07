"""Federated active learning: CHASe and the methods it was compared with.

What a notebook needs is here (docs/library.md); everything is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chase.acquisition.pool_view import PoolView
    from chase.acquisition.strategy import AcquisitionStrategy, top_k
    from chase.annotation.annotator import Annotator, Answer, Desk, Question
    from chase.core.errors import ChaseError
    from chase.data.in_memory import make_data
    from chase.data.resident import DataSet
    from chase.library import load_settings, resume_experiment, run_experiment
    from chase.report.data_frames import Figure, Run, read_run
    from chase.settings import Settings

__version__ = "0.1.0"

_PLACES = {
    "AcquisitionStrategy": "chase.acquisition.strategy",
    "Annotator": "chase.annotation.annotator",
    "Answer": "chase.annotation.annotator",
    "ChaseError": "chase.core.errors",
    "DataSet": "chase.data.resident",
    "Desk": "chase.annotation.annotator",
    "Figure": "chase.report.data_frames",
    "PoolView": "chase.acquisition.pool_view",
    "Question": "chase.annotation.annotator",
    "Run": "chase.report.data_frames",
    "Settings": "chase.settings",
    "load_settings": "chase.library",
    "make_data": "chase.data.in_memory",
    "read_run": "chase.report.data_frames",
    "resume_experiment": "chase.library",
    "run_experiment": "chase.library",
    "top_k": "chase.acquisition.strategy",
}
"""Where each public name is."""

__all__ = [
    "AcquisitionStrategy",
    "Annotator",
    "Answer",
    "ChaseError",
    "DataSet",
    "Desk",
    "Figure",
    "PoolView",
    "Question",
    "Run",
    "Settings",
    "__version__",
    "load_settings",
    "make_data",
    "read_run",
    "resume_experiment",
    "run_experiment",
    "top_k",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'chase' has no attribute '{name}'")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__
