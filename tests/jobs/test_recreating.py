"""What pickle refuses is made anew where code uses it, or named with a remedy."""

from __future__ import annotations

import functools
import multiprocessing
import pickle
import socket
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from queue import Queue, SimpleQueue
from typing import Any

import pytest

from jobs.other_process import shown_by, value_from
from slotwise.jobs.pickling import pickled_by_value


class Key:
    """Can be weakly referenced."""


def own() -> threading.local:
    """Data of a thread, with a default."""

    class Own(threading.local):
        x = 5

    return Own()


KEY = Key()

ANEW: dict[str, tuple[Callable[[], Any], str, str]] = {
    "Lock": (threading.Lock, "value.acquire(False), value.release()", "(True, None)"),
    "RLock": (threading.RLock, "value.acquire(False), value.release()", "(True, None)"),
    "Condition": (threading.Condition, "value.acquire(False), value.notify()", "(True, None)"),
    "Event": (threading.Event, "value.is_set()", "False"),
    "Semaphore": (lambda: threading.Semaphore(2), "value._value", "2"),
    "BoundedSemaphore": (lambda: threading.BoundedSemaphore(2), "value._value", "2"),
    "Barrier": (lambda: threading.Barrier(2), "value.parties", "2"),
    "local": (threading.local, "vars(value)", "{}"),
    "Own": (own, "value.x", "5"),
    "ContextVar": (lambda: ContextVar("v", default=4), "value.get()", "4"),
    "Queue": (Queue, "value.qsize()", "0"),
    "SimpleQueue": (SimpleQueue, "value.qsize()", "0"),
    "WeakKeyDictionary": (lambda: weakref.WeakKeyDictionary({KEY: 1}), "dict(value)", "{}"),
    "WeakValueDictionary": (lambda: weakref.WeakValueDictionary({1: KEY}), "dict(value)", "{}"),
    "within": (lambda: [{"lock": threading.Lock()}], "value[0]['lock'].locked()", "False"),
}


@pytest.mark.parametrize("name", ANEW)
@pytest.mark.sampled(3)
def test_what_a_function_uses_is_made_anew(name: str) -> None:
    """In its globals, the variables of functions around it, and its default values."""
    make, code, expected = ANEW[name]
    value = make()
    if name.endswith(("Lock", "Condition", "BoundedSemaphore")):
        value.acquire()
    if name == "local":
        value.x = 3
    space: dict[str, Any] = {"kept": value}
    exec("def uses(): return kept", space)
    for uses in space["uses"], lambda: value, lambda default=value: default:
        assert shown_by(f"value = given[0]()\nvalue = {code}", uses) == expected


def test_one_lock_of_a_script_is_one_lock_elsewhere() -> None:
    """Functions and objects that share it still do."""
    lock = threading.Lock()
    condition = threading.Condition(lock)
    uses = [lambda: lock, lambda: condition._lock]  # type: ignore[attr-defined]
    assert shown_by("value = given[0][0]() is given[0][1]()", uses) == "True"


def test_attributes_of_classes_are_made_anew() -> None:
    """Also in what the standard library puts there."""

    class Guarded:
        lock = threading.Lock()

        @functools.cached_property
        def square(self) -> int:
            return 9

        @functools.singledispatchmethod
        def kind(self, value: object) -> str:
            return "any"

        @kind.register
        def _(self, value: int) -> str:
            return "int"

    code = "one = given[0]()\nvalue = one.square, one.lock.locked(), one.kind(1), one.kind('')"
    assert shown_by(code, Guarded) == "(9, False, 'int', 'any')"


def test_an_argument_is_not_made_anew() -> None:
    """A lock that is given as an argument would guard nothing: as pickle, it is refused."""
    for value in threading.Lock(), threading.local(), weakref.WeakKeyDictionary():
        refused = f"cannot pickle .*{type(value).__name__}"
        with pytest.raises(TypeError, match=refused):
            pickled_by_value((lambda x: x, value))
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"cannot pickle '_thread.lock' object"):
        pickled_by_value((lambda: 0, {"lock": lock}))


@pytest.fixture
def refused(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Values that no other process can make."""
    with (
        open(tmp_path / "log", "w") as text,
        open(tmp_path / "data", "wb") as data,
        socket.socket() as connection,
    ):
        base = sqlite3.connect(":memory:")
        yield {
            "text": text,
            "data": data,
            "connection": connection,
            "base": base,
            "generator": (x for x in "ab"),
            "thread": threading.Thread(),
            "lock": multiprocessing.Lock(),
        }
        base.close()


NAMES = ("text", "data", "connection", "base", "generator", "thread", "lock")


@pytest.mark.parametrize("name", NAMES)
def test_a_global_that_cannot_be_made_anew_is_named(name: str, refused: dict[str, Any]) -> None:
    """With the function, the type, the reason of pickle and a remedy."""
    space = {name: refused[name], "other": 1}
    exec(f"def outer(): return inner()\ndef inner(): return other, {name}", space)
    expected = (
        rf"function 'inner' uses the global '{name}', of type {type(refused[name]).__name__}"
    )
    with pytest.raises(pickle.PicklingError, match=expected) as caught:
        pickled_by_value(space["outer"])
    assert "; create it where it is used, for instance in the function" in str(caught.value)
    assert caught.value.__cause__ is not None


def test_what_else_cannot_be_made_anew_is_named(refused: dict[str, Any]) -> None:
    """Variables of functions around, default values, and attributes of classes."""
    text = refused["text"]

    class Log:
        file = text

        def first(self) -> str:
            return super().__repr__()

    def default(file: Any = text) -> Any:
        return file

    held = [text]
    for uses, expected in [
        (lambda: text, "uses the variable 'text' of another function, of type TextIOWrapper"),
        (lambda: held, "uses the variable 'held' of another function, of type list"),
        (default, "has a default value, of type TextIOWrapper"),
        (lambda: Log().first(), r"Log' has the attribute 'file', of type TextIOWrapper"),
        (Log(), r"class '.*Log' has the attribute 'file', of type TextIOWrapper"),
    ]:
        with pytest.raises(pickle.PicklingError, match=expected):
            pickled_by_value(uses)


def test_the_error_of_an_argument_is_that_of_pickle(refused: dict[str, Any]) -> None:
    """Though a function is sent with it."""
    with pytest.raises(TypeError, match=r"^cannot pickle 'generator' object$"):
        pickled_by_value((lambda x: x, refused["generator"]))


def test_a_result_that_uses_what_was_made_anew_returns() -> None:
    """A function made in a worker process, which uses a lock there."""
    lock = threading.Lock()

    def maker() -> Callable[[], bool]:
        return lambda: lock.acquire(blocking=False)

    made = pickle.loads(value_from("value = given[0]()", maker))
    assert made()
    assert not made()
    assert not lock.locked()
