"""Packers: a prepared problem that can be packed in many orders."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from slotwise.allocation.compiled import FLOATS, INTS, compiled
from slotwise.allocation.packing.pieces import Pieces
from slotwise.allocation.packing.sweep import sweep
from slotwise.objective.costs import Floats, Ints

Values = Sequence[float] | Floats
Order = Sequence[int] | Ints
Number = TypeVar("Number", bound=float)


class Packer(Protocol):
    """Packs the jobs of one problem in any order; create it once for many orders.

    An order contains every job once, the most urgent first.
    """

    def completions(self, order: Order) -> Floats:
        """The completion of each job, seconds; indexed by job, not by place in the order."""
        ...

    def pieces(self, order: Order) -> Pieces:
        """The whole schedule."""
        ...


class EventPacker:
    """Packs by events, in Python."""

    def __init__(
        self, capacity: float, work: Values, min_share: Values, max_share: Values
    ) -> None:
        self._numbers = (
            float(capacity),
            as_floats(work),
            as_floats(min_share),
            as_floats(max_share),
        )
        self._min_share = np.array(self._numbers[2])
        early, ends = _ends_at_least(np.array(self._numbers[1]), self._min_share)
        self._early = early.tolist(), ends.tolist()

    def completions(self, order: Order) -> Floats:
        """When each job is done."""
        completion = [-1.0] * len(order)
        sweep(*self._numbers, as_list(order), *self._early, completion, (), (), ())
        return np.array(completion)

    def pieces(self, order: Order) -> Pieces:
        """The whole schedule."""
        count = len(order)
        completion, room = [-1.0] * count, 2 * count + 1
        changed, since, slots = [0] * room, [0.0] * room, [0.0] * room
        changes = sweep(
            *self._numbers, as_list(order), *self._early, completion, changed, since, slots
        )
        return Pieces.of_changes(
            self._min_share,
            np.array(completion),
            np.array(changed[:changes], dtype=np.int64),
            np.array(since[:changes]),
            np.array(slots[:changes]),
        )


class CompiledPacker:
    """Packs by the same events, in machine code. ImportError without numba."""

    def __init__(
        self, capacity: float, work: Values, min_share: Values, max_share: Values
    ) -> None:
        shares = (np.ascontiguousarray(v, dtype=float) for v in (work, min_share, max_share))
        self._capacity = float(capacity)
        self._work, self._min_share, self._most = shares
        self._early = _ends_at_least(self._work, self._min_share)
        self._sweep = compiled(sweep, SWEEP)

    def completions(self, order: Order) -> Floats:
        """When each job is done."""
        return self._run(order, 0)[0]

    def pieces(self, order: Order) -> Pieces:
        """The whole schedule."""
        completion, changed, since, slots = self._run(order, 2 * len(order) + 1)
        return Pieces.of_changes(self._min_share, completion, changed, since, slots)

    def _run(self, order: Order, room: int) -> tuple[Floats, Ints, Floats, Floats]:
        """The completion times, and the changes of shares unless `room` is 0."""
        completion = np.full(len(order), -1.0)
        changed, since, slots = np.empty(room, dtype=np.int64), np.empty(room), np.empty(room)
        changes = self._sweep(
            self._capacity,
            self._work,
            self._min_share,
            self._most,
            np.ascontiguousarray(order, dtype=np.int64),
            *self._early,
            completion,
            changed,
            since,
            slots,
        )
        return completion, changed[:changes], since[:changes], slots[:changes]


SWEEP = (
    f"int64(float64, {FLOATS}, {FLOATS}, {FLOATS}, {INTS}, {INTS}, {FLOATS}, {FLOATS},"
    f" {INTS}, {FLOATS}, {FLOATS})"
)
"""The types of the arguments of `sweep`, in order."""


def _ends_at_least(work: Floats, min_share: Floats) -> tuple[Ints, Floats]:
    """The jobs with a min share by their ends on it alone, and these ends, then inf."""
    held = np.flatnonzero(min_share > 0)
    with np.errstate(over="ignore"):  # A tiny share gives an end of inf.
        ends = work[held] / min_share[held]
    by_end = np.argsort(ends, kind="stable")
    return held[by_end], np.append(ends[by_end], inf)


def as_floats(values: Values) -> list[float]:
    """A new list of Python floats from any sequence."""
    if isinstance(values, np.ndarray):
        floats: list[float] = values.astype(float, copy=False).tolist()
        return floats
    return list(map(float, values))


def as_list(values: Sequence[Number] | NDArray[Any]) -> Sequence[Number]:
    """An array as a list, which Python reads faster; other sequences unchanged."""
    if isinstance(values, np.ndarray):
        numbers: list[Number] = values.tolist()
        return numbers
    return values
