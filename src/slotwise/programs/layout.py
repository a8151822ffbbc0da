"""The paths of a job's files while it runs, and of its output."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one job; they must be valid on every host.

    work_dir  the folder of its intermediate files
    output    the directory of its output
    """

    work_dir: str
    output: str

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
        """The directory for the intermediate files of one attempt."""
        return Path(self.work_dir) / f"{phase}-{task}-{attempt}"

    def staged(self, part: str, attempt: int) -> str:
        """The path at which an attempt writes a part of the output, perhaps in a folder."""
        return f"{self.staging}/{attempt}-{part.replace('/', '+')}"
