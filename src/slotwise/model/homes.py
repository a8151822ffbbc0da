"""Where the input of the pending tasks of a phase is, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.signedinteger[Any]]


class Copies(NamedTuple):
    """The copies of the input of pending tasks: entry i is a copy for a task on a host.

    names  hosts, which need not be in the cluster
    tasks  the task of each copy, in increasing order
    hosts  the host of each copy, as a place in `names`
    """

    names: Sequence[str]
    tasks: Integers
    hosts: Integers


class HomesView(Protocol):
    """The pending tasks of one phase and their input."""

    def copies(self) -> Copies:
        """The copies of the input of its pending tasks; for pinned tasks, their hosts.

        O(copies of all tasks), in numpy.
        """
        ...

    def pending(self, most: int) -> Sequence[int]:
        """The lowest pending tasks, at most so many."""
        ...

    def task_without_home(self) -> int | None:
        """A pending task with input on no host of the cluster."""
        ...

    def without_home(self) -> Sequence[int]:
        """The pending tasks with input on no host of the cluster, lowest first. O(these)."""
        ...

    def bytes_of(self, tasks: Integers) -> Integers:
        """The size of the input of each of these tasks; 0 where it is unknown."""
        ...
