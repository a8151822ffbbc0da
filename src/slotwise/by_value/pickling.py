"""The pickle of a value with the code that other processes cannot import.

What is defined here is sent with its code. What was received from another process goes back as
a reference, so that who defined it gets its own object. Others that do not know it make it from
the code that the reference carries.
"""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Callable
from contextlib import suppress
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

import cloudpickle

from slotwise.by_value.anew import Reduced, made_anew, refused
from slotwise.by_value.known import (
    Place,
    identity_of,
    known,
    of_other_run,
    received,
    with_identity,
)

PROTOCOL = 5

KEPT_MOST = 1 << 18
"""The most bytes of a pickle of code that is kept for further references."""

CODE = (type, FunctionType, ModuleType, functools._lru_cache_wrapper)
"""What is sent by value with an identity, besides objects that pickle sends by name."""

Take = Callable[[pickle.PickleBuffer], object]


def pickled_by_value(value: object, take: Take | None = None) -> bytes:
    """The pickle of a value by cloudpickle, which gives large buffers to `take`.

    PicklingError for a function or class that uses what cannot be sent: it names both. Values
    that are sent themselves raise what pickling raises.
    """
    with io.BytesIO() as body:
        pickler = _Pickler(body, take)
        try:
            pickler.dump(value)
        except Exception as error:
            reason = refused(pickler.within[-1], _check) if pickler.within else ""
            if reason:
                raise pickle.PicklingError(reason) from error
            raise
        return body.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles code by value, or by reference if it was received.

    within  the functions and classes whose parts are being pickled
    """

    def __init__(self, body: io.BytesIO, take: Take | None = None) -> None:
        super().__init__(body, protocol=PROTOCOL, buffer_callback=take)
        self.within: list[object] = []

    def reducer_override(self, value: Any) -> Any:
        """How a value is pickled; NotImplemented for what pickle does itself."""
        kind = type(value)
        if issubclass(kind, CODE):  # Not isinstance, which asks a value itself.
            return self._reference(value) or self._code(value)
        if self.within and (anew := made_anew(value)):
            return anew
        is_python = FunctionType in (type(kind.__reduce__), type(kind.__reduce_ex__))
        if not is_python or kind in self.dispatch_table:
            return NotImplemented
        reduced = value.__reduce_ex__(PROTOCOL)
        if not isinstance(reduced, str) or not _is_sent(getattr(value, "__module__", None)):
            return reduced
        # Pickle sends it by its name, as the only object of a class, or a type variable.
        return self._reference(value) or self._defined(
            value, object.__new__, (kind,), value.__getstate__(), _set_state
        )

    def _code(self, value: Any) -> Any:
        """How code is pickled: by its name, if other processes can import it."""
        if isinstance(value, functools._lru_cache_wrapper):
            if not _is_sent(value.__module__):
                with suppress(pickle.PicklingError, AttributeError):
                    pickle.dumps(value)  # By name, which must lead to this function.
                    return value.__qualname__
            return self._defined(value, _cached, (value.cache_parameters(), value.__wrapped__))
        if isinstance(value, ModuleType):
            make, given = self.dispatch_table[ModuleType](value)
            if len(given) == 1:
                return make, given
            name, parts = given
            return self._defined(value, make, (name, {}), parts, _set_state)
        reduced = super().reducer_override(value)
        if not isinstance(reduced, tuple) or len(reduced) < 6:
            return reduced
        make, given, state, _, _, fill = reduced
        if isinstance(value, type):
            _set_slots(value, given, state)
        return self._defined(value, make, given, state, fill)

    def _reference(self, value: object) -> Reduced | None:
        """A reference to what was received; None for what was not."""
        found = known(value)
        if found is None or found.is_own:
            return None
        definition = found.definition
        if definition is None:
            definition = _definition(value)
            if len(definition) <= KEPT_MOST:
                found.definition = definition
        return _referred, (found.identity, found.place, definition)

    def _defined(
        self,
        value: object,
        make: Callable[..., object],
        given: Reduced,
        state: object = None,
        fill: Callable[[Any, Any], object] | None = None,
        *,
        replaces: bool = True,
    ) -> Reduced:
        """How a thing is made by `make(*given)`, unless it is known, and filled with a state.

        If it `replaces`, a class that is known is filled again, and a function is made again.
        """
        enter = _Mark(lambda: self.within.append(value))
        leave = _Mark(self.within.pop)
        first = (identity_of(value), replaces, make, *given)
        parts = (enter, state, leave, replaces, fill)
        return _made, first, parts, None, None, _filled


class _Definer(_Pickler):
    """Pickles by value also what was received, for those who do not know it."""

    def _reference(self, value: object) -> None:
        return None

    def _defined(self, *given: Any, replaces: bool = False) -> Reduced:
        return super()._defined(*given, replaces=replaces)


class _Checker(_Pickler):
    """Pickles all but code that is sent by value."""

    def _defined(self, *given: Any, replaces: bool = False) -> Reduced:
        return int, ()


class _Mark:
    """Pickled before and after the parts of a function or class: the pickler is within."""

    def __init__(self, step: Callable[[], object]) -> None:
        self._step = step

    def __reduce__(self) -> Reduced:
        self._step()
        return int, ()


def _definition(value: object) -> bytes:
    """The pickle by value of what was received; empty if parts of it cannot be pickled."""
    body = io.BytesIO()
    try:
        _Definer(body).dump(value)
    except Exception:  # Who knows it needs no definition.
        return b""
    return body.getvalue()


def _check(value: object, within: object) -> None:
    """Raise what pickling a value raises, apart from functions and classes that it uses."""
    checker = _Checker(io.BytesIO())
    checker.within.append(within)
    checker.dump(value)


def _is_sent(module: object) -> bool:
    """Whether other processes cannot import a module."""
    return module == "__main__" or module in cloudpickle.list_registry_pickle_by_value()


def _set_slots(value: type, given: Reduced, state: Any) -> None:
    """Give a class its slots when it is made, which cloudpickle does not.

    They are not taken from `__slots__`, which may be an iterator.
    """
    space = vars(value)
    if "__slots__" not in space or NamedTuple in space.get("__orig_bases__", ()):
        return
    own = [name for name, one in space.items() if type(one) is MemberDescriptorType]
    others = [name for name in ("__dict__", "__weakref__") if name in space]
    *_, options, _, _ = given
    options["__slots__"] = (*own, *others)
    for name in own:
        state[0].pop(name, None)


# What pickles call when they are loaded.


def _referred(identity: str, place: Place, definition: bytes) -> object:
    """The thing with this identity. UnpicklingError if it is neither known nor defined here."""
    if found := with_identity(identity):
        return found()
    if (other := of_other_run(identity, place)) is not None:
        return other
    if not definition:
        raise pickle.UnpicklingError(
            f"{'.'.join(place)} was defined in another process and is not known in this one; it"
            " cannot be sent by value, because something that it uses cannot be pickled"
        )
    return pickle.loads(definition)


def _made(identity: str, replaces: bool, make: Callable[..., Any], *given: Any) -> object:
    """The thing with this identity; a function is made again when it `replaces` another."""
    if found := with_identity(identity):
        thing = found()
        if found.is_own or not replaces or not isinstance(thing, CODE[1:]):
            return thing
        if make is _cached and getattr(thing, "__wrapped__", None) is given[1]:
            return thing  # It refers to itself.
    thing = make(*given)
    received(identity, thing)
    return thing


def _filled(thing: Any, state: tuple[Any, ...]) -> None:
    """Set the parts of a thing that was received; nothing changes what was defined here."""
    _, parts, _, replaces, fill = state
    found = known(thing)
    if found is not None and (found.is_own or (found.is_filled and not replaces)):
        return
    if fill is not None:
        fill(thing, parts)
    if found is not None:
        found.is_filled = True


def _cached(parameters: dict[str, Any], function: Callable[..., Any]) -> object:
    """A function with an empty cache."""
    return functools.lru_cache(**parameters)(function)


def _set_state(thing: Any, parts: Any) -> None:
    """Set the attributes of an object, as pickle does."""
    if hasattr(thing, "__setstate__"):
        thing.__setstate__(parts)
        return
    in_dict, in_slots = parts if isinstance(parts, tuple) else (parts, None)
    vars(thing).update(in_dict or {})
    for name, one in (in_slots or {}).items():
        setattr(thing, name, one)
