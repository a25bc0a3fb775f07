"""What files are called in predictions: as in the run's own data, so that predictions and labels join by id.

A picture is called by its path in the folder that it was found in. What lies inside the folder that the run was trained
or tested on is called by its path in that folder, also where only a part of it is given. What a table of the run names
is called as there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from chase.data.user_data import tables_in
from chase.export.table_items import picture_names
from chase.export.trained import Trained
from chase.run import data_check


@dataclass(frozen=True)
class SampleIds:
    """Names of files, given where the data of the run is now."""

    trained: Trained
    known: tuple[Path, ...]
    """Folders of the run's own data, the smallest first."""
    tables: tuple[tuple[Path, ...], ...]
    """Tables of the run's own data, each with its shards."""

    @classmethod
    def of(cls, trained: Trained) -> SampleIds:
        """For the model of a run."""
        places = list(dict.fromkeys(p.resolve() for p in data_check.whereabouts(trained.path, trained.settings)))
        folders = [place for place in places if place.is_dir()]
        tables = [part for folder in folders for part in tables_in(folder)[1].values()]
        tables += [(place,) for place in places if place.is_file()]
        return cls(trained, tuple(sorted(folders, key=lambda folder: -len(folder.parts))), tuple(tables))

    @cached_property
    def named(self) -> dict[Path, str]:
        """The ids of pictures that the run's own tables name by their paths; read once, for the first file."""
        found: dict[Path, str] = {}
        for files in self.tables:
            found = picture_names(self.trained, files) | found
        return found

    def of_file(self, file: Path, given: Path | None = None) -> str:
        """The id of a file, of a folder that was ``given`` or by itself."""
        place = file.parent.resolve() / file.name  # a link among the files keeps its own name
        if place in self.named:
            return readable(self.named[place])
        for folder in self.known:
            if place.is_relative_to(folder):
                return readable(str(place.relative_to(folder)))
        return readable(str(file if given is None else file.relative_to(given)))


def readable(name: str) -> str:
    """A name as it is kept: what is no valid Unicode is replaced, as in ``chase.data.names``."""
    return name.encode("utf-8", "replace").decode("utf-8")
