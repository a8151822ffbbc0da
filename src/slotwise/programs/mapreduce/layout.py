"""The paths of a job's files while it runs, and of its output."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slotwise.model.shuffle import COPY_KIND

COPY_PHASE = f"reduce-{COPY_KIND}"
"""The phase that copies map output for the reduces, if the job has a separate one."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one job; they must be valid on every host."""

    work_dir: str
    output: str
    suffix: str

    @property
    def temporary(self) -> str:
        """The directory in the output for files that are removed when it is complete."""
        return f"{self.output}/_temporary"

    @property
    def staging(self) -> str:
        """The directory of parts that are not committed yet; unique to the job."""
        return f"{self.temporary}/{Path(self.work_dir).name}"

    @property
    def placing(self) -> str:
        """The manifest of parts that a commit is about to move into place."""
        return f"{self.temporary}/placing"

    @property
    def success(self) -> str:
        """The file, written last, that marks the output as complete and lists its parts."""
        return f"{self.output}/_SUCCESS"

    def attempt_dir(self, phase: str, task: int, attempt: int) -> Path:
        """The directory for the map output and spills of one attempt."""
        return Path(self.work_dir) / f"{phase}-{task}-{attempt}"

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
        return f"{self.staging}/{attempt}-{self.part_name(phase, task)}"

    def part_name(self, phase: str, task: int) -> str:
        """The final name of a part: part-r-00000 for a reduce, part-m-00000 for a map."""
        return f"part-{phase[0]}-{task:05}{self.suffix}"
