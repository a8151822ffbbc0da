"""Files that tasks leave for later ones, on this host or on others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from slotwise.programs.blocks import is_complete
from slotwise.programs.hosts.here import is_local
from slotwise.programs.lost_input import CHANGED, LostInputError


class TaskFile(NamedTuple):
    """A file that the attempt of a task has left, for a task that reads parts of it.

    address  where the host that has it serves it; empty if all hosts see it
    part     the first part that is read
    """

    phase: str
    task: int
    attempt: int
    address: str
    path: Path
    part: int

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        if is_local(self.address):
            return str(self.path)
        return f"{self.path.parent.name}/{self.path.name} at {self.address}"


def lost_here(files: Iterable[TaskFile]) -> LostInputError | None:
    """The error for those of the files on this host that are lost; None if there are none.

    Those of other hosts are missed when they are fetched. OSError if this cannot be found out.
    """
    here = (file for file in files if is_local(file.address))
    return lost_of(file for file in here if not is_complete(file.path))


def lost_of(lost: Iterable[TaskFile], why: str = CHANGED) -> LostInputError | None:
    """The error for files that are lost, and why they are; None if there are none.

    It names those of one phase. Those of others are found by the next attempt.
    """
    by_phase: dict[str, list[tuple[int, int, str | Path]]] = {}
    for file in lost:
        found = by_phase.setdefault(file.phase, [])
        found.append((file.task, file.attempt, file.place))
    errors = (LostInputError.of(phase, found, why) for phase, found in by_phase.items())
    return next(errors, None)
