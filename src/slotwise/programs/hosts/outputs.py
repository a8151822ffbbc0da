"""Files that tasks leave for later ones, on this host or on others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from slotwise.programs.blocks import is_complete
from slotwise.programs.hosts.here import address_here
from slotwise.programs.lost_input import LostInputError
from slotwise.programs.shuffle.partitioned import Place


class Output(NamedTuple):
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
        return str(self.path) if is_here(self.address) else f"{self.path} at {self.address}"


def is_here(address: str) -> bool:
    """Whether files that are served at an address are files on this host."""
    return address in ("", address_here())


def in_place(
    outputs: Sequence[Output], count: int, copies: Path, *, may_cut: bool = False
) -> Iterator[Place]:
    """Where `count` parts of each file are; those of other hosts are fetched first.

    The names of their copies begin with `copies`. With `may_cut`, large blocks may be cut.
    LostInputError if files of other hosts are missing, or these hosts cannot be reached.
    """
    if all(is_here(output.address) for output in outputs):
        yield from ((output.path, output.part) for output in outputs)
        return
    # Imported where it is needed: with ssl it takes long.
    from slotwise.programs.hosts.fetched import fetched

    yield from fetched(outputs, count, copies, may_cut=may_cut)


def lost_here(outputs: Iterable[Output]) -> LostInputError | None:
    """The error for those of the files on this host that are lost; None if there are none.

    `in_place` finds those that others have lost. OSError if this cannot be found out.
    """
    here = (output for output in outputs if is_here(output.address))
    return lost_of(output for output in here if not is_complete(output.path))


def lost_of(lost: Iterable[Output]) -> LostInputError | None:
    """The error for files that are lost; None if there are none.

    It names those of one phase. Those of others are found by the next attempt.
    """
    by_phase: dict[str, list[tuple[int, int, str | Path]]] = {}
    for output in lost:
        found = by_phase.setdefault(output.phase, [])
        found.append((output.task, output.attempt, output.place))
    return next((LostInputError.of(phase, found) for phase, found in by_phase.items()), None)
