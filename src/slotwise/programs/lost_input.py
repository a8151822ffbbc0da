"""The errors of a task that has lost what it needs: output of other tasks, or a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Worker processes import this module, but need none of these.
    from collections.abc import Iterable
    from pathlib import Path


CHANGED = (
    "is missing or incomplete; find out what removes or changes files there while jobs run"
)


class IncompleteFileError(OSError):
    """The end of a file is missing."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(f"{path} is incomplete")


class LostInputError(BaseException):
    """Output of done tasks is lost: they must be done again before the task that reads it.

    It is no Exception, so that `except Exception` in user code does not catch it. It is sent to
    the manager as it is.

    phase    the phase whose output is lost
    outputs  its tasks, each with the number of the attempt that wrote the output
    place    the first file that is lost
    why      what is wrong with it, after its name
    """

    def __init__(
        self,
        phase: str,
        outputs: tuple[tuple[int, int], ...],
        place: str,
        why: str = CHANGED,
    ) -> None:
        super().__init__(phase, outputs, place, why)
        self.phase, self.outputs, self.place, self.why = phase, outputs, place, why

    @classmethod
    def of(
        cls, phase: str, lost: Iterable[tuple[int, int, str | Path]], why: str = CHANGED
    ) -> LostInputError | None:
        """The error for these tasks, attempts and files; None if there are none."""
        found = tuple(lost)
        if not found:
            return None
        outputs = tuple((task, attempt) for task, attempt, _ in found)
        return cls(phase, outputs, str(found[0][2]), why)

    def __str__(self) -> str:
        return f"{self.place} {self.why}"


class LostAttemptError(BaseException):
    """A process of the attempt has ended without a word: the attempt is lost, not failed.

    The worker process of a task need not be the only one. Like LostInputError it is no
    Exception, and is sent as it is.
    """
