"""What a pickle cannot hold but another process can create, as if it ran the script."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import Context, ContextVar
from functools import partial
from queue import SimpleQueue
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any

Reduced = tuple[Any, ...]
"""How pickle makes a value: a callable, its arguments, perhaps more."""


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
"""Locks are free, and what belongs to a thread or is weakly held is empty."""


def recreated(value: object) -> Reduced | None:
    """How the receiver creates such a value; None if it is sent as it is."""
    bases = type(value).__mro__
    if RECREATED.keys().isdisjoint(bases):
        return None
    return next(RECREATED[base](value) for base in bases if base in RECREATED)


def refused(within: Any, check: Callable[[object, Any], object]) -> str:
    """Why a function or class cannot be sent: the first value it uses that `check` refuses."""
    for what, value in _used(within):
        try:
            check(value, within)
        except Exception as error:
            kind = "class" if isinstance(within, type) else type(within).__name__
            name = getattr(within, "__qualname__", None) or getattr(within, "__name__", "")
            return (
                f"{kind} {name!r} {what}, of type {type(value).__name__}, which"
                f" cannot be sent to another process: {error}; make it where it is used, for"
                " instance in the function, or give what it is made from as an argument"
            )
    return ""


def _default(variable: ContextVar[Any]) -> dict[str, Any]:
    try:
        return {"default": Context().run(variable.get)}
    except LookupError:
        return {}


def _used(within: Any) -> Iterator[tuple[str, object]]:
    """The values that a function or class uses, each with a description."""
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
    """The names that code may use as globals, also in functions within it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _global_names(inner)
