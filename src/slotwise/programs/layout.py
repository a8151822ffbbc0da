"""The paths of a job's files while it runs, and of its output."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slotwise.programs.hosts.here import address_here, folder_here
from slotwise.programs.work_folder import keeping


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one job.

    work_dir   the folder of its intermediate files
    output     the directory of its output, which all hosts must see
    is_shared  whether all hosts see the intermediate files; otherwise each has its own
    """

    work_dir: str
    output: str
    is_shared: bool

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
        return self.folder / f"{phase}-{task}-{attempt}"

    @property
    def folder(self) -> Path:
        """The folder of the intermediate files on this host."""
        return Path(self.work_dir) if self.is_shared else folder_here(self.work_dir)

    def make_attempt_dir(self, phase: str, task: int, attempt: int) -> Path:
        """Make this directory, private. WorkFolderError, also if the job is over."""
        directory = self.attempt_dir(phase, task, attempt)
        with keeping(directory.parent):
            if self.folder != Path(self.work_dir):  # The first task of the job on this host.
                directory.parent.mkdir(mode=0o700, exist_ok=True)
            directory.mkdir(mode=0o700, exist_ok=True)
        return directory

    @property
    def address(self) -> str:
        """Where other hosts fetch files of attempts on this host; empty if they see them."""
        return "" if self.is_shared else address_here()

    def staged(self, part: str, attempt: int) -> str:
        """The path at which an attempt writes a part of the output, perhaps in a folder."""
        return f"{self.staging}/{attempt}-{part.replace('/', '+')}"
