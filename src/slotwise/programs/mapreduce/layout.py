"""The paths of a MapReduce job's files while it runs, and of its output."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slotwise.model.shuffle import COPY_KIND
from slotwise.programs.layout import Layout

COPY_PHASE = f"reduce-{COPY_KIND}"
"""The phase that copies map output for the reduces, if the job has a separate one."""


@dataclass(frozen=True, slots=True)
class MapReduceLayout(Layout):
    """The paths of one MapReduce job; `suffix` ends the names of its parts."""

    suffix: str

    def map_file(self, task: int, attempt: int) -> Path:
        """The map output of one attempt."""
        return self.attempt_dir("map", task, attempt) / "pairs"

    def copied_file(self, phase: str, task: int, attempt: int) -> Path:
        """The file into which one attempt copies the map outputs for one reduce."""
        return self.attempt_dir(phase, task, attempt) / "copied"

    @property
    def finished_maps(self) -> Path:
        """The file that lists the finished maps."""
        return Path(self.work_dir) / "finished-maps"

    def attempt_part(self, phase: str, task: int, attempt: int) -> str:
        """The path at which an attempt writes its part of the output."""
        return self.staged(self.part_name(phase, task), attempt)

    def part_name(self, phase: str, task: int) -> str:
        """The final name of a part: part-r-00000 for a reduce, part-m-00000 for a map."""
        return f"part-{phase[0]}-{task:05}{self.suffix}"
