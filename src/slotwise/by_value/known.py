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

    __slots__ = ("definition", "identity", "is_filled", "is_own", "key")

    identity: str
    key: int
    is_own: bool
    is_filled: bool
    definition: bytes | None


_by_thing: dict[int, Known] = {}
_by_identity: dict[str, Known] = {}

_origin, _numbers = "", count()


def known(thing: object) -> Known | None:
    """What is known of a thing, unless it was neither sent nor received."""
    found = _by_thing.get(id(thing))
    return found if found is not None and found() is thing else None


def identity_of(thing: object) -> str:
    """The identity of a thing, given now if it has none; empty if it can have none."""
    found = known(thing)
    if found is None:
        # If two threads do this at once, both identities lead to the thing.
        identity = f"{_origin}-{next(_numbers)}"
        found = _noted(thing, identity, is_own=True)
    return "" if found is None else found.identity


def with_identity(identity: str) -> Known | None:
    """The thing with this identity that is alive in this process."""
    found = _by_identity.get(identity)
    return found if found is not None and found() is not None else None


def received(identity: str, thing: object) -> None:
    """Note that a thing was received; with the same identity, it takes the place of another."""
    if not identity:
        return
    if found := known(thing):
        _by_identity[identity] = found
    else:
        _noted(thing, identity, is_own=False)


def of_other_run(identity: str, place: Place) -> object:
    """The thing of this name that was received from another program than the identity is of.

    It is for values that an earlier run has stored: they become those of the present classes,
    as with pickle. None if there is none. O(things that are known).
    """
    origin = _origin_of(identity)
    if "<locals>" not in place[1]:
        for found in list(_by_identity.values()):
            if not found.is_own and _origin_of(found.identity) != origin:
                thing = found()
                if thing is not None and place_of(thing) == place:
                    return thing
    return None


def place_of(thing: Any) -> Place:
    """The module and the qualified name that a thing states."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    return str(module), str(name or getattr(thing, "__name__", None))


def _noted(thing: object, identity: str, *, is_own: bool) -> Known | None:
    try:
        noted = Known(thing, _forget)
    except TypeError:  # Not all objects can be weakly referenced.
        return None
    key = id(thing)
    noted.identity, noted.key, noted.is_own = identity, key, is_own
    noted.is_filled, noted.definition = False, None
    _by_thing[key] = _by_identity[identity] = noted
    return noted


def _forget(gone: Any) -> None:
    key, identity = gone.key, gone.identity
    if _by_thing.get(key) is gone:
        del _by_thing[key]
    if _by_identity.get(identity) is gone:
        del _by_identity[identity]


def _origin_of(identity: str) -> str:
    return identity.partition("-")[0]


def _begin() -> None:
    """Give the identities of this process another beginning than those of all others."""
    global _origin
    _origin = os.urandom(8).hex()


_begin()
os.register_at_fork(after_in_child=_begin)
