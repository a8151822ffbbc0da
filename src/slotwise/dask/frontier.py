"""The order of the tasks of one computation: Dask's, which keeps few results in memory."""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush


class Frontier:
    """The runnable tasks of a computation by rank, which is their place in Dask's order.

    The first ones are offered slots; slotwise divides slots among the phases of these. The
    others come later: otherwise the phases that read input would get slots as long as they have
    tasks, and their results would fill the memory of the workers.

    Tasks that only certain workers may run are offered as these have room, whatever their rank:
    otherwise they would keep the room from those of other computations.

    A change costs O(log n) with n tasks, and a search among those that are offered.
    """

    __slots__ = ("_bound", "_later", "_offered", "_order")

    def __init__(self) -> None:
        self._offered: list[int] = []  # sorted
        self._bound: set[int] = set()  # also offered
        self._later: set[int] = set()
        self._order: list[int] = []  # a heap of `_later`; it may have ranks that have left

    @property
    def offered(self) -> int:
        """The number of tasks that are offered slots."""
        return len(self._offered) + len(self._bound)

    @property
    def later(self) -> int:
        """The number of tasks that come later."""
        return len(self._later)

    def has_enough(self, most: int) -> bool:
        """Whether `most` tasks are offered beside the bound ones, or no more are left."""
        return not self._later or len(self._offered) >= most

    def add(self, rank: int) -> None:
        """A task is runnable; it comes later until `balance`."""
        self._later.add(rank)
        heappush(self._order, rank)

    def bind(self, rank: int) -> None:
        """A task that only certain workers may run is offered slots."""
        self._bound.add(rank)

    def remove(self, rank: int) -> None:
        """A task begins to run, or is not runnable any more."""
        if rank in self._bound:
            self._bound.remove(rank)
        elif rank in self._later:
            self._later.remove(rank)
            if len(self._order) > 2 * len(self._later):
                self._order = list(self._later)
                heapify(self._order)
        else:
            del self._offered[bisect_left(self._offered, rank)]

    def balance(self, most: int) -> tuple[list[int], list[int]]:
        """Offer the first `most` tasks; the ranks that are offered and that are withdrawn now.

        If more are offered already, the first of as many are.
        """
        offered: list[int] = []
        withdrawn: list[int] = []
        while (rank := self._first()) is not None:
            if len(self._offered) >= most:
                if not self._offered or rank > self._offered[-1]:
                    break
                withdrawn.append(self._offered.pop())
                self.add(withdrawn[-1])
            heappop(self._order)
            self._later.remove(rank)
            insort(self._offered, rank)
            offered.append(rank)
        return offered, withdrawn

    def _first(self) -> int | None:
        """The first of the tasks that come later."""
        while self._order and self._order[0] not in self._later:
            heappop(self._order)
        return self._order[0] if self._order else None
