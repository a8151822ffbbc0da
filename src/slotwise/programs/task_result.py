"""What a task of a job of stages reports."""

from __future__ import annotations

from typing import NamedTuple


class TaskResult(NamedTuple):
    """The report of a task: records written, and bytes of its output for other tasks.

    `copying` is the seconds for which it copied that of other tasks or waited for them.
    `address` is where other hosts fetch its output for other tasks; empty if they see it.
    """

    records: int
    bytes: int
    copying: float = 0.0
    address: str = ""


class SuccessfulAttempts(NamedTuple):
    """Of all tasks of a phase, the attempts that won; 0 for a task that is not done.

    `addresses` is where other hosts fetch what they have left; empty if all hosts see all.
    """

    attempts: tuple[int, ...]
    addresses: tuple[str, ...] = ()

    def of(self, task: int) -> tuple[int, str]:
        """The attempt of a task that won, and its address."""
        return self.attempts[task], self.addresses[task] if self.addresses else ""
