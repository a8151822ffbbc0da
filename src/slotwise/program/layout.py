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
        """The directory in the output for all that goes when the output is complete."""
        return f"{self.output}/_temporary"

    @property
    def staging(self) -> str:
        """The directory for parts that are not committed; no other job has the same."""
        return f"{self.temporary}/{Path(self.work_dir).name}"

    @property
    def placing(self) -> str:
        """The manifest of parts that a commit is about to put into their places."""
        return f"{self.temporary}/placing"

    @property
    def success(self) -> str:
        """The file that says that the output is complete, and lists its parts; written last."""
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
        return f"{self.staging}/{attempt}-{self.part_name(phase, task)}"

    def part_name(self, phase: str, task: int) -> str:
        """How a part is named in the end: part-r-00000 of a reduce, part-m-00000 of a map."""
        return f"part-{phase[0]}-{task:05}{self.suffix}"
