"""Where a job's files lie while it runs, and where its output ends up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slotwise.model.shuffle import COPY_KIND

COPY_PHASE = f"reduce-{COPY_KIND}"
"""The phase that copies for the reduces, where that is split from them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of one job; every host must see them under the same names."""

    work_dir: str
    output: str
    suffix: str

    @property
    def temporary(self) -> str:
        """The directory for parts that are not committed, on the file system of the output."""
        return f"{self.output}/_temporary"

    @property
    def success(self) -> str:
        """The empty file that says that the output is complete; written last."""
        return f"{self.output}/_SUCCESS"

    def attempt_dir(self, phase: str, task: int, attempt: int) -> Path:
        """The directory for the map output and spills of one attempt."""
        return Path(self.work_dir) / f"{phase}-{task}-{attempt}"

    def map_file(self, task: int, attempt: int) -> Path:
        """The map output of one attempt."""
        return self.attempt_dir("map", task, attempt) / "pairs"

    def copied_file(self, phase: str, task: int, attempt: int) -> Path:
        """What one attempt copied of all map outputs for one reduce."""
        return self.attempt_dir(phase, task, attempt) / "copied"

    @property
    def finished_maps(self) -> Path:
        """The file that tells which maps have finished."""
        return Path(self.work_dir) / "finished-maps"

    def attempt_part(self, phase: str, task: int, attempt: int) -> str:
        """Where an attempt writes its part of the output."""
        return f"{self.temporary}/{attempt}-{self._part_name(phase, task)}"

    def part(self, phase: str, task: int) -> str:
        """Where a part ends up: part-r-00000 of a reduce, part-m-00000 of a map."""
        return f"{self.output}/{self._part_name(phase, task)}"

    def _part_name(self, phase: str, task: int) -> str:
        return f"part-{phase[0]}-{task:05}{self.suffix}"
