"""Whether what users give to a session has the right type; other code checks its values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from slotwise.model.cluster import Cluster
from slotwise.model.errors import InputError
from slotwise.model.pool import Pool, Preemption


def check_slots(slots: object) -> None:
    """InputError unless it is a number of slots, or numbers by kind, a `Cluster` or None."""
    if isinstance(slots, Mapping):
        for kind, count in slots.items():
            check_text("slots: the kind of a slot", kind)
            check_whole(f"slots: the number of kind {kind!r}", count)
    elif slots is not None and not isinstance(slots, Cluster):
        check_whole("slots", slots)


def check_pools(pools: Any) -> tuple[Pool, ...]:
    """The pools. InputError unless all are of the class `Pool`."""
    if isinstance(pools, Iterable) and not isinstance(pools, str | Mapping):
        given = tuple(pools)
        wrong = [pool for pool in given if not isinstance(pool, Pool)]
        if not wrong:
            return given
        pools = wrong[0]
    raise InputError(f"pools: {pools!r} is no pool; give a list such as [slotwise.Pool('a')]")


def check_preemption(preemption: object) -> None:
    """InputError unless it is a `Preemption` or None."""
    if preemption is not None and not isinstance(preemption, Preemption):
        raise InputError(
            f"preemption is {preemption!r}; give a slotwise.Preemption, such as"
            " slotwise.Preemption(least_after=1.0)"
        )


def check_text(what: str, value: object) -> None:
    """InputError unless it is a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise InputError(f"{what} is {value!r}; give a text that is not empty")


def check_whole(what: str, value: object) -> None:
    """InputError unless it is a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{what} is {value!r}; give a whole number >= 1")


def check_number(what: str, value: object) -> None:
    """InputError unless it is a number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(f"{what} is {value!r}; give a number")
