"""Pickles that include code which other processes cannot import, such as that of `__main__`."""

from __future__ import annotations

import functools
import io
import os
import pickle
import sys
import threading
import weakref
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import Context, ContextVar
from functools import partial
from itertools import count
from operator import itemgetter
from queue import SimpleQueue
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import cloudpickle

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


# The registry of things, such as classes and functions, that were sent or received by value.
#
# The process that defines a thing gives it an identity when it first sends it. Pickles of other
# processes refer to it by this identity, so that its own process gets its own object back.

Place = tuple[str, str]
"""A module and a qualified name in it."""


class Known(weakref.ref[Any]):
    """A weak reference to a thing with an identity.

    is_own      whether it was defined in this process
    is_filled   whether all of it has been received
    definition  the pickle by value of a received thing; None until it is needed
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
    """Return the entry of a thing, or None if it was neither sent nor received."""
    found = _by_thing.get(id(thing))
    return found if found is not None and found() is thing else None


def identity_of(thing: object) -> str:
    """Return the identity of a thing, a new one if it has none; empty if it can have none."""
    found = known(thing)
    if found is None:
        # If two threads do this at once, both identities lead to the thing.
        identity = f"{_origin}-{next(_numbers)}"
        found = _noted(thing, identity, is_own=True)
    return "" if found is None else found.identity


def with_identity(identity: str) -> Known | None:
    """Return the live thing with this identity in this process, or None."""
    found = _by_identity.get(identity)
    return found if found is not None and found() is not None else None


def received(identity: str, thing: object) -> None:
    """Register a received thing. It replaces an earlier one with the same identity."""
    if not identity:
        return
    if found := known(thing):
        _by_identity[identity] = found
    else:
        _noted(thing, identity, is_own=False)


def of_other_run(identity: str, place: Place) -> object:
    """Return a received thing of this name whose origin is not that of the identity, or None.

    Values that an earlier run stored thus become instances of the present classes, as with
    pickle. O(registered things).
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
    """Return the module and the qualified name that a thing states."""
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


def _forget(reference: Any) -> None:
    key, identity = reference.key, reference.identity
    if _by_thing.get(key) is reference:
        del _by_thing[key]
    if _by_identity.get(identity) is reference:
        del _by_identity[identity]


def _origin_of(identity: str) -> str:
    return identity.partition("-")[0]


def _begin() -> None:
    """Choose a prefix for the identities of this process that no other process has."""
    global _origin
    _origin = os.urandom(8).hex()


_begin()
os.register_at_fork(after_in_child=_begin)


# Values that cannot be pickled, but that another process can create again.

Reduced = tuple[Any, ...]
"""How pickle creates a value: a callable, its arguments, and optional further items."""


def refuse(value: object) -> Reduced:
    """Raise TypeError, as pickle does."""
    raise TypeError(f"cannot pickle {type(value).__name__!r} object")


WEAK = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)

RECREATED: dict[type, Callable[[Any], Reduced]] = {
    type(threading.Lock()): lambda lock: (threading.Lock, ()),
    type(threading.RLock()): lambda lock: (threading.RLock, ()),
    threading.Condition: lambda condition: (type(condition), (condition._lock,)),
    threading.BoundedSemaphore: lambda it: (type(it), (it._initial_value,)),
    threading.local: lambda local: (type(local), ()),
    **dict.fromkeys(WEAK, lambda weak: (type(weak), ())),
    threading.Thread: refuse,  # It would be sent without what runs.
    ContextVar: lambda variable: (partial(ContextVar, variable.name, **_default(variable)), ()),
    SimpleQueue: lambda queue: (type(queue), ()),
}
"""Locks are created unlocked. Containers of thread-local or weakly held values are empty."""


def recreated(value: object) -> Reduced | None:
    """Return how the receiver creates such a value, or None if it is pickled as usual."""
    bases = type(value).__mro__
    if RECREATED.keys().isdisjoint(bases):
        return None
    return next(RECREATED[base](value) for base in bases if base in RECREATED)


def refused(within: Any, check: Callable[[object, Any], object]) -> str:
    """Return why a function or class cannot be sent: its first value that fails `check`."""
    for what, value in _used(within):
        try:
            check(value, within)
        except Exception as error:
            kind = "class" if isinstance(within, type) else type(within).__name__
            name = getattr(within, "__qualname__", None) or getattr(within, "__name__", "")
            return (
                f"{kind} {name!r} {what}, of type {type(value).__name__}, which"
                f" cannot be sent to another process: {error}; create it where it is used, for"
                " instance in the function, or pass what it is created from as an argument"
            )
    return ""


def faulty_part(value: object, is_faulty: Callable[[object], bool]) -> tuple[str, object]:
    """The innermost part of a value that cannot be sent, and its place, such as `.a['b'][2]`.

    Items of mappings, lists and tuples and attributes of objects are parts.
    """
    place, seen = "", {id(value)}
    while True:
        for step, part in _parts(value):
            if id(part) not in seen and is_faulty(part):
                place, value = place + step, part
                seen.add(id(part))
                break
        else:
            return place, value


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{number}]", part) for number, part in enumerate(value))
    elif type(value).__reduce__ is object.__reduce__:
        yield from ((f".{name}", part) for name, part in getattr(value, "__dict__", {}).items())


def _default(variable: ContextVar[Any]) -> dict[str, Any]:
    try:
        return {"default": Context().run(variable.get)}
    except LookupError:
        return {}


def _used(within: Any) -> Iterator[tuple[str, object]]:
    """Yield the values that a function or class uses, each with a description."""
    for name, value in getattr(within, "__dict__", {}).items():
        if type(value) not in (GetSetDescriptorType, MemberDescriptorType):
            yield f"has the attribute {name!r}", value
    if not isinstance(within, FunctionType):
        return
    for name in _global_names(within.__code__):
        if name in within.__globals__:
            yield f"uses the global {name!r}", within.__globals__[name]
    for name, cell in zip(within.__code__.co_freevars, within.__closure__ or (), strict=True):
        with suppress(ValueError):  # It has no value yet.
            yield f"uses the variable {name!r} of another function", cell.cell_contents
    for value in (*(within.__defaults__ or ()), *(within.__kwdefaults__ or {}).values()):
        yield "has a default value", value


def _global_names(code: CodeType) -> Iterator[str]:
    """Yield the names that code and the functions within it may use as globals."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _global_names(inner)


# Pickles of values with the code that other processes cannot import.
#
# Definitions of this process are sent with their code. Received ones are sent as references, so
# that the process that defines them gets its own objects. A process that does not know such an
# object creates it from the code in the reference.

PROTOCOL = 5

OURS = (__name__, cloudpickle.Pickler.__module__)
"""The modules of the functions that pickles call."""

MAX_KEPT = 1 << 18
"""The maximum size in bytes of a pickle of code that is kept for further references."""

CODE_TYPE = cloudpickle.Pickler(io.BytesIO()).reducer_override(CodeType)
"""The pickle of `CodeType`, which is part of each function."""

MAKE, FILL = itemgetter(0, 5)(cloudpickle.Pickler(io.BytesIO()).reducer_override(lambda: 0))
"""The creator and filler of functions. Pickles have None instead: it is shorter and faster."""

MADE_AGAIN = (FunctionType, ModuleType, functools._lru_cache_wrapper)
"""Types that are created again when they arrive again; other things are created once."""

Take = Callable[[pickle.PickleBuffer], object]


class Sending(threading.local):
    """Whether this thread pickles for its workers, which must get the present state.

    Received definitions are then sent with their code, too, and replace what workers have.
    """

    now = False


sending = Sending()


def sent_by_value(value: object) -> bytes:
    """Return the pickle of a value for workers of this process; see `pickled_by_value`."""
    outer, sending.now = sending.now, True
    try:
        return pickled_by_value(value)
    finally:
        sending.now = outer


class PickledRunner:
    """A function that is known by its pickle, in a process that must not run its code.

    It is unpickled where it is called, and so are the arguments of each call, which are one
    pickle. Modules are looked for in the folders of `path`, too. If it `packs`, it returns the
    pickles of what the function returns.
    """

    def __init__(self, body: bytes, path: Sequence[str], *, packs: bool) -> None:
        self._body, self._path, self._packs = body, tuple(path), packs
        self._function: Callable[..., object] | None = None

    def __call__(self, arguments: bytes) -> object:
        """Call the function. SlotwiseError for what cannot be unpickled or pickled here."""
        sys.path += [folder for folder in self._path if folder not in sys.path]
        trouble = "the function of the task cannot be loaded in a worker process"
        try:
            if self._function is None:
                self._function, self._body = pickle.loads(self._body), b""
            trouble = "the arguments of the task cannot be read in a worker process"
            given = pickle.loads(arguments)
        except Exception as error:
            raise _trouble(f"{trouble}: {type(error).__name__}: {error}") from error
        result = self._function(*given)
        if not self._packs:
            return result
        try:
            return pickled_by_value(result)
        except Exception as error:
            kind, why = type(result).__name__, f"{type(error).__name__}: {error}"
            trouble = f"a result, of type {kind}, cannot be sent between processes"
            raise _trouble(f"{trouble}: {why}") from error


def pickled_by_value(value: object) -> bytes:
    """Return the pickle of a value with the code that others cannot import.

    Raises PicklingError, naming both, for a function or class that uses a value that cannot be
    sent. For other values, raises what pickling raises.
    """
    with io.BytesIO() as body:
        dump_by_value(value, None, body)
        return body.getvalue()


def dump_by_value(value: object, take: Take | None, body: SupportsWrite[bytes]) -> None:
    """Write the pickle of `pickled_by_value` to a file or a collector of pieces.

    `take` gets the large buffers, which are then not in the pickle.
    """
    pickler = _Pickler(body, take)
    try:
        pickler.dump(value)
    except Exception as error:
        if not pickler.within or type(error).__module__.startswith("slotwise."):
            raise  # Errors of slotwise have a remedy already.
        if not (reason := refused(pickler.within[-1], _check)):
            raise
        raise pickle.PicklingError(reason) from error


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles code by value, or by reference if it was received.

    within  the functions and classes whose parts are being pickled
    """

    dispatch_table: ClassVar[Any] = ChainMap(
        dict.fromkeys(WEAK, refuse), cloudpickle.Pickler.dispatch_table
    )

    def __init__(self, body: SupportsWrite[bytes], take: Take | None = None) -> None:
        super().__init__(body, protocol=PROTOCOL, buffer_callback=take)
        self.within: list[object] = []

    def reducer_override(self, value: Any) -> Any:
        """Return how a value is pickled; NotImplemented leaves it to pickle."""
        kind = type(value)
        if kind is FunctionType:
            if value.__module__ in OURS:
                return NotImplemented  # Faster than checking whether it can be imported.
            return self._reference(value) or self._code(value)
        if kind is _Mark:
            return value.reached()
        if issubclass(kind, type):  # isinstance would use the `__class__` of the value.
            if value is CodeType:
                return CODE_TYPE
            return self._reference(value) or self._code(value)
        if kind is ModuleType:
            return self._reference(value) or self._module(value)
        if kind is functools._lru_cache_wrapper:
            return self._reference(value) or self._cached(value)
        if self.within and (reduced := recreated(value)):
            return reduced
        return self._named(value)

    def _code(self, value: Any) -> Any:
        """Reduce a function or class; by name if other processes can import it."""
        reduced = super().reducer_override(value)
        if not isinstance(reduced, tuple) or len(reduced) < 6:
            return reduced
        make, given, state, _, _, fill = reduced
        if isinstance(value, type):
            _set_slots(value, given, state)
        return self._defined(value, make, given, state, fill)

    def _module(self, value: ModuleType) -> Reduced:
        make, given = self.dispatch_table[ModuleType](value)
        if len(given) == 1:
            return make, given
        name, parts = given
        return self._defined(value, make, (name, {}), parts, _set_state)

    def _cached(self, value: Any) -> Any:
        """Reduce a function with a cache. The cache is empty in other processes."""
        if not _is_sent(value.__module__):
            with suppress(pickle.PicklingError, AttributeError):
                pickle.dumps(value)  # By name, which must lead to this function.
                return value.__qualname__
        return self._defined(
            value, _cached, (value.cache_parameters(), value.__wrapped__), None, _set_state
        )

    def _named(self, value: Any) -> Any:
        """Reduce what pickle sends by name, such as a singleton or a type variable."""
        kind = type(value)
        # Only `__reduce__` in Python returns names of objects that others cannot import.
        if FunctionType not in (type(kind.__reduce__), type(kind.__reduce_ex__)):
            return NotImplemented
        if kind in self.dispatch_table:
            return NotImplemented
        reduced = value.__reduce_ex__(PROTOCOL)
        if not isinstance(reduced, str) or not _is_sent(getattr(value, "__module__", None)):
            return reduced
        return self._reference(value) or self._defined(
            value, object.__new__, (kind,), value.__getstate__(), _set_state
        )

    def _reference(self, value: object) -> Reduced | None:
        """Return a reference to a received thing; None for other things."""
        found = known(value)
        if found is None or found.is_own or sending.now:
            return None
        definition = found.definition
        if definition is None:
            definition = _definition(value)
            if len(definition) <= MAX_KEPT:
                found.definition = definition
        return _referred, (found.identity, place_of(value), definition)

    def _defined(
        self,
        value: object,
        make: Callable[..., object],
        given: Reduced,
        state: object,
        fill: Callable[[Any, Any], object],
        *,
        replaces: bool = True,
    ) -> Reduced:
        """Return how an unknown thing is created by `make(*given)` and filled with a state.


        If it `replaces`, a known class is filled again, and a known function is created again.
        """
        first = (identity_of(value), replaces, None if make is MAKE else make, *given)
        last = (replaces, None if fill is FILL else fill)
        parts: Reduced
        if type(value) is FunctionType and not _uses(value, state):
            parts = (None, state, None, *last)
        else:
            parts = (_Mark(self.within, value), state, _Mark(self.within), *last)
        return _made, first, parts, None, None, _filled


class _Definer(_Pickler):
    """Pickles received things by value, too, for processes that do not know them."""

    def _reference(self, value: object) -> None:
        return None

    def _defined(self, *given: Any, replaces: bool = False) -> Reduced:
        return super()._defined(*given, replaces=replaces)


class _Checker(_Pickler):
    """Pickles everything except code that is sent by value."""

    def _defined(self, *given: Any, replaces: bool = False) -> Reduced:
        return int, ()


class _Mark:
    """Pickled before and after the parts of a function or class, to track `_Pickler.within`."""

    __slots__ = ("_entered", "_within")

    def __init__(self, within: list[object], entered: object = None) -> None:
        self._within, self._entered = within, entered

    def reached(self) -> Reduced:
        """Update `within`, and return how the mark is pickled."""
        if self._entered is None:
            self._within.pop()
        else:
            self._within.append(self._entered)
        return _mark, ()


def _definition(value: object) -> bytes:
    """Return the pickle by value of a received thing; empty if it cannot be pickled."""
    body = io.BytesIO()
    try:
        _Definer(body).dump(value)
    except Exception:  # A process that knows it needs no definition.
        return b""
    return body.getvalue()


def _check(value: object, within: object) -> None:
    """Raise what pickling a value raises, ignoring functions and classes that it uses."""
    checker = _Checker(io.BytesIO())
    checker.within.append(within)
    checker.dump(value)


def _is_sent(module: object) -> bool:
    """Return whether the code of a module is sent, because others cannot import it."""
    return module == "__main__" or module in cloudpickle.list_registry_pickle_by_value()


def _uses(function: FunctionType, state: Any) -> object:
    """Return whether a function uses any values; most small functions do not."""
    return (
        state[1]["__globals__"]
        or function.__closure__
        or function.__defaults__
        or function.__kwdefaults__
        or vars(function)
    )


def _set_slots(value: type, given: Reduced, state: Any) -> None:
    """Add slots to the creation of a class, which cloudpickle omits.

    They are found by descriptors, because `__slots__` may be an exhausted iterator.
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


# Functions that pickles call when they are loaded.


def _referred(identity: str, place: Place, definition: bytes) -> object:
    """Return the thing with this identity; raise UnpicklingError if it cannot be created."""
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


def _made(
    identity: str, replaces: bool, make: Callable[..., Any] | None, *given: Any
) -> object:
    """Return the thing with this identity; create it if unknown or a replaced function."""
    if found := with_identity(identity):
        thing = found()
        if found.is_own or not replaces or not isinstance(thing, MADE_AGAIN):
            return thing
        if make is _cached and getattr(thing, "__wrapped__", None) is given[1]:
            return thing  # It refers to itself.
    thing = (make or MAKE)(*given)
    received(identity, thing)
    return thing


def _filled(thing: Any, state: tuple[Any, ...]) -> None:
    """Set the parts of a received thing; definitions of this process never change."""
    _, parts, _, replaces, fill = state
    found = known(thing)
    if found is not None and (found.is_own or (found.is_filled and not replaces)):
        return
    (fill or FILL)(thing, parts)
    if found is not None:
        found.is_filled = True


def _mark() -> None:
    """Do nothing: only pickling needs marks."""


def _cached(parameters: dict[str, Any], function: Callable[..., Any]) -> object:
    """Return a function with an empty cache."""

    return functools.lru_cache(**parameters)(function)


def _set_state(thing: Any, parts: Any) -> None:
    """Set the attributes of an object, as pickle does."""
    if hasattr(thing, "__setstate__"):
        thing.__setstate__(parts)
        return
    in_dict, in_slots = parts if isinstance(parts, tuple) else (parts, None)
    if in_dict:
        vars(thing).update(in_dict)
    for name, one in (in_slots or {}).items():
        setattr(thing, name, one)


def _trouble(reason: str) -> Exception:
    """A SlotwiseError. Its module is loaded only now, because idle workers load this one."""
    from slotwise.core.errors import SlotwiseError

    return SlotwiseError(reason)
