"""The settings of a run: one flat, validated, frozen value, its fields in groups.

Settings come from a preset or a TOML file, then from ``--strategy`` and ``--set key=value``. A file may
hold flat keys (``lr = 0.1``), groups (``[training]`` and below it ``lr = 0.1``) or both.
``Settings.resolved`` fills in what a method leaves open, so the file that is written into a run
directory says everything.

``choices`` (what settings may name), ``groups`` (the fields), ``values`` (all in one value, checked together),
``loading`` (presets, TOML and ``key=value``).
"""

from chase.settings.choices import (
    ALL_CLIENTS,
    ANNOTATORS,
    FEATURES,
    LOGGERS,
    LOSSES,
    PARTITIONS,
    RECOMMENDATION,
    RECOMMENDED,
)
from chase.settings.groups import GROUPS, DataSettings, about_group
from chase.settings.loading import (
    beside,
    flatten,
    from_mapping,
    load,
    parse_changes,
    presets,
    read_file,
    to_toml,
    values_of,
)
from chase.settings.values import Settings

__all__ = [
    "ALL_CLIENTS",
    "ANNOTATORS",
    "FEATURES",
    "GROUPS",
    "LOGGERS",
    "LOSSES",
    "PARTITIONS",
    "RECOMMENDATION",
    "RECOMMENDED",
    "DataSettings",
    "Settings",
    "about_group",
    "beside",
    "flatten",
    "from_mapping",
    "load",
    "parse_changes",
    "presets",
    "read_file",
    "to_toml",
    "values_of",
]
