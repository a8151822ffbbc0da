"""What this process has sent to others by value or received from them: classes, functions.

Each such thing has an identity, which the process where it was defined gives to it when it
first sends it. A pickle made elsewhere refers to it by this identity, so that the process where
it was defined gets its own object back.
"""

from __future__ import annotations

import os
import weakref
from itertools import count
from typing import Any

Place = tuple[str, str]
"""A module and a qualified name in it."""


class Known(weakref.ref[Any]):
    """A weak reference to a thing with an identity.

    is_own      whether it was defined in this process
    is_filled   whether all of it has been received
    definition  the pickle by value of a thing that was received; None until it is needed
    """

    __slots__ = ("definition", "identity", "is_filled", "is_own", "key", "place")

    def __new__(cls, thing: Any, identity: str, is_own: bool) -> Known:
        """TypeError for a thing that cannot be weakly referenced."""
        return super().__new__(cls, thing, _forget)

    def __init__(self, thing: Any, identity: str, is_own: bool) -> None:
        super().__init__(thing, _forget)  # type: ignore[call-arg]
        self.key, self.identity, self.is_own = id(thing), identity, is_own
        self.place = place_of(thing)
        self.is_filled = False
        self.definition: bytes | None = None


_by_thing: dict[int, Known] = {}
_by_identity: dict[str, Known] = {}
_by_place: dict[Place, Known] = {}
"""Of the things that were received, the last one with each name in a module."""

_origin, _numbers = "", count()


def known(thing: object) -> Known | None:
    """What is known of a thing, unless it was neither sent nor received."""
    found = _by_thing.get(id(thing))
    return found if found is not None and found() is thing else None


def identity_of(thing: object) -> str:
    """The identity of a thing, given now if it has none; empty if it can have none."""
    found = known(thing)
    if found is None:
        try:
            found = Known(thing, f"{_origin}-{next(_numbers)}", True)
        except TypeError:  # It cannot be weakly referenced.
            return ""
        # If two threads do this at once, both identities lead to the thing.
        _by_thing[found.key] = _by_identity[found.identity] = found
    return found.identity


def with_identity(identity: str) -> Known | None:
    """The thing with this identity that is alive in this process."""
    found = _by_identity.get(identity)
    return found if found is not None and found() is not None else None


def received(identity: str, thing: object) -> None:
    """Note that a thing was received; with the same identity, it takes the place of another."""
    if not identity:
        return
    found = known(thing)
    if found is None:
        found = Known(thing, identity, False)
        _by_thing[found.key] = found
        if "<locals>" not in found.place[1]:
            _by_place[found.place] = found
    _by_identity[identity] = found


def of_other_run(identity: str, place: Place) -> object:
    """The thing of this name that was received from another program than the identity is of.

    It is for values that an earlier run has stored: they become those of the present classes,
    as with pickle. None if there is none.
    """
    found = _by_place.get(place)
    if found is None or _origin_of(found.identity) == _origin_of(identity):
        return None
    return found()


def place_of(thing: Any) -> Place:
    """The module and the qualified name that a thing states."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    return str(module), str(name or getattr(thing, "__name__", None))


def _forget(gone: Any) -> None:
    for table, key in (
        (_by_thing, gone.key),
        (_by_identity, gone.identity),
        (_by_place, gone.place),
    ):
        if table.get(key) is gone:
            del table[key]


def _origin_of(identity: str) -> str:
    return identity.partition("-")[0]


def _begin() -> None:
    """Give the identities of this process another beginning than those of all others."""
    global _origin
    _origin = os.urandom(8).hex()


_begin()
os.register_at_fork(after_in_child=_begin)
