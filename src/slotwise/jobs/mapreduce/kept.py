"""The output of the maps of a job that did not complete, which a later run reads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from slotwise.jobs.blocks import is_complete
from slotwise.jobs.mapreduce.program import MapReduceLayout
from slotwise.jobs.work_folder import is_private


class KeptMap(NamedTuple):
    """The successful attempt of a map, and what it reported."""

    attempt: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class KeptMaps:
    """The output of all maps of a job.

    folder    the work folder with it
    reducers  the number of reduces for which it is partitioned
    sizes     the bytes of the file of each map
    """

    folder: str
    reducers: int
    maps: tuple[KeptMap, ...]
    sizes: tuple[int, ...] = ()

    def measured(self) -> KeptMaps:
        """Return the same with the sizes of the files. Raises OSError."""
        sizes = tuple(os.stat(path).st_size for path in self._files())
        return KeptMaps(self.folder, self.reducers, self.maps, sizes)

    def names(self) -> list[str]:
        """Return the names in the work folder that are part of the output."""
        return [path.parent.name for path in self._files()]

    def damage(self) -> str:
        """Return why the output cannot be read any more, or "". Opens each file."""
        if not is_private(self.folder):
            return "its output was removed"
        for task, (path, size) in enumerate(zip(self._files(), self.sizes, strict=True)):
            try:
                if os.stat(path).st_size != size or not is_complete(path):
                    return f"the output of task {task} is incomplete"
            except OSError:
                return f"the output of task {task} was removed"
        return ""

    def plain(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {
            "folder": self.folder,
            "reducers": self.reducers,
            "maps": [list(one) for one in self.maps],
            "sizes": list(self.sizes),
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Return the value of JSON data. Raises KeyError, TypeError or ValueError."""
        maps = tuple(KeptMap(*map(int, one)) for one in plain["maps"])
        sizes = tuple(map(int, plain["sizes"]))
        if len(sizes) != len(maps) or not isinstance(plain["folder"], str):
            raise ValueError("sizes of other maps")
        return cls(plain["folder"], int(plain["reducers"]), maps, sizes)

    def _files(self) -> Iterator[Path]:
        layout = MapReduceLayout(self.folder, "", True, "")
        for task, one in enumerate(self.maps):
            yield layout.map_file(task, one.attempt)
