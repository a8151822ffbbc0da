"""A script whose output must not depend on what runs its calls: see test_results.py.

python script_of_values.py PATH
"""

# ruff: noqa: D101, D102, D103
from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import sys
import threading
import typing
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, Generic, NamedTuple

FACTOR = 2
K = typing.TypeVar("K")
P = typing.ParamSpec("P")
UserId = typing.NewType("UserId", int)


class Model:
    """A class with state of its own, and a method that uses a global variable."""

    best = 0
    made: ClassVar[list[str]] = []

    class Inner:
        """A class within a class."""

    def __init__(self, x: int) -> None:
        self.x = x

    def scaled(self) -> int:
        return FACTOR * self.x

    @functools.cached_property
    def square(self) -> int:
        return self.x**2

    @classmethod
    def of(cls, x: int) -> Model:
        return cls(x)


class Registered(type):
    """A metaclass that notes its classes."""

    names: ClassVar[list[str]] = []

    def __init__(cls, name: str, bases: Any, space: Any) -> None:
        super().__init__(name, bases, space)
        Registered.names.append(name)


class Plugin(metaclass=Registered):
    """A base class that notes what derives from it."""

    kinds: ClassVar[list[str]] = []

    def __init_subclass__(cls) -> None:
        Plugin.kinds.append(cls.__name__)


class Reader(Plugin):
    pass


class Slotted:
    __slots__ = ("__hidden", "a")

    def __init__(self, a: int) -> None:
        self.a = self.__hidden = a

    def hidden(self) -> int:
        return self.__hidden


class More(Slotted):
    __slots__ = ("__dict__", "__weakref__", "b")


@dataclasses.dataclass(slots=True)
class Point:
    x: int
    y: int = 3


@dataclasses.dataclass(slots=True, frozen=True)
class Frozen:
    x: int


@dataclasses.dataclass
class Node:
    name: str
    next: Node | None = None


class Pair(NamedTuple):
    left: int
    right: int = 0


class Box(Generic[K]):
    def __init__(self, item: K) -> None:
        self.item = item


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self) -> int: ...


class Square(Shape):
    def area(self) -> int:
        return FACTOR


class Color(enum.Enum):
    RED = 1
    BLUE = "b"


class Mode(enum.Flag):
    A = enum.auto()
    B = enum.auto()


class Level(enum.IntEnum):
    LOW = 1


class Only:
    """A class with one object, which pickle sends by its name."""

    def __reduce__(self) -> str:
        return "ONLY"


ONLY = Only()


class FailedError(Exception):
    """An exception that counts how often it is made."""

    made = 0

    def __init__(self, *given: object) -> None:
        super().__init__(*given)
        FailedError.made += 1


def double(x: int) -> int:
    return FACTOR * x


@functools.cache
def cached(x: int) -> int:
    return x if x < 2 else cached(x - 1) + cached(x - 2)


@functools.singledispatch
def total(value: Any) -> int:
    return int(value)


@total.register
def _(value: list) -> int:  # type: ignore[type-arg]
    return sum(map(total, value))


LOCK, RLOCK, LOCAL = threading.Lock(), threading.RLock(), threading.local()
READY, ENOUGH = threading.Condition(), threading.BoundedSemaphore(2)
CACHE: weakref.WeakValueDictionary[int, Model] = weakref.WeakValueDictionary()
DEPTH = ContextVar("depth", default=7)


class Counter:
    """An object with a lock, in a global variable."""

    def __init__(self) -> None:
        self.lock, self.count = threading.Lock(), 5

    def next(self) -> int:
        with self.lock:
            self.count += 1
            return self.count


COUNTER = Counter()


def guarded(x: int) -> int:
    """Uses what pickle refuses."""
    if not x:
        return COUNTER.next()
    LOCAL.x = x
    with LOCK, RLOCK, READY, ENOUGH:
        model = CACHE.setdefault(x, Model(x))
        return int(LOCAL.x + CACHE[x].x + (model.x == x) + DEPTH.get())


def same(x: Any) -> Any:
    return x


def new(kind: Callable[..., Any], *given: Any) -> Any:
    return kind(*given)


def ring(name: str) -> Node:
    first = Node(name)
    first.next = Node("second", first)
    return first


def changed(x: int) -> Model:
    """Changes a class and a global variable, where it runs."""
    global FACTOR
    Model.best, FACTOR = x, x
    return Model(x)


def raises(message: str) -> None:
    error = FailedError(message)
    error.add_note("a note")
    raise error


def raises_group() -> None:
    raise ExceptionGroup("two", [FailedError("a"), ValueError("b")])


def show(name: str, *values: object) -> None:
    print(name, *values, flush=True)


def main(call: Callable[..., Any], *, fails: bool) -> None:
    """Make calls and show what they return."""
    global FACTOR
    show("model", type(call(new, Model, 3)) is Model, call(changed, 9).x, Model.best)
    model = call(new, Model, 3)
    Model.best, FACTOR = 5, 10
    call(new, Model, 4)
    show("kept", Model.best, model.scaled(), Model.made, FACTOR)
    FACTOR = 2
    show("property", call(same, model).square)
    for kind in Slotted, More, Point, Frozen, Pair, Box, Model.Inner, Square, Reader:
        given = () if kind in (Model.Inner, Square, Reader) else (4,)
        for _ in range(2):
            found = call(new, kind, *given)
            show(kind.__name__, type(found) is kind, call(same, kind) is kind)
    show("hidden", call(new, Slotted, 8).hidden(), call(new, Slotted, 8).a)
    show("equal", call(new, Point, 1) == Point(1), call(new, Pair, 1) == Pair(1))
    show("shape", isinstance(call(new, Square), Shape), call(new, Square).area())
    show("registered", Registered.names, Plugin.kinds)
    for one in Color.RED, Color.BLUE, Level.LOW, Mode.A, ONLY:
        show("one", call(same, one) is one)
    show("flags", call(same, Mode.A | Mode.B) == Mode.A | Mode.B)
    for one in K, P, UserId, double, cached, total, Model.scaled, FailedError, Color:
        show("code", call(same, one) is one)
    held = call(
        same, [model.scaled, functools.partial(double, 4), {Color.RED: Model}, Model.of]
    )
    show("held", type(held[0].__self__) is Model, held[1].func is double, held[2], held[3](2).x)
    found = call(ring, "first")
    show("ring", found.next.next is found, type(found.next) is Node)
    show("cached", call(cached, 20), call(total, [1, 2.5, [3]]), call(guarded, 0))
    with LOCK, RLOCK, ENOUGH:
        show("locked", call(guarded, 4))
    error = call(same, FailedError("returned"))
    show("error", type(error) is FailedError, error.args)
    if fails:
        FailedError.made = 0
        for task in (raises, "m"), (raises_group,):
            try:
                call(*task)
            except FailedError as failed:
                show("failed", failed.args, failed.__notes__[0], FailedError.made)
            except ExceptionGroup as group:
                show("group", group, [type(one) is FailedError for one in group.exceptions])


@contextmanager
def path(name: str) -> Iterator[Callable[..., Any]]:
    """What makes the calls."""
    if name == "pool":
        with ProcessPoolExecutor(1) as pool:
            yield lambda *call: pool.submit(*call).result()
        return
    import slotwise

    if name == "calls":
        yield in_a_job
        return
    if name == "dask":
        from distributed import Client, LocalCluster

        with (
            LocalCluster(
                n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
            ) as cluster,
            Client(cluster) as client,
            slotwise.Session(dask=client) as session,
        ):
            yield lambda *call: session.submit(same, session.submit(*call)).result()
        return
    with slotwise.Session(2) as session:
        if name == "executor":
            with session.executor() as executor:
                yield lambda *call: executor.submit(*call).result()
        elif name == "chunks":
            with session.executor() as executor:
                yield lambda *call: next(executor.map(with_call, [call], chunksize=2))
        elif name == "map":
            yield lambda fn, *given: next(session.map(lambda _: fn(*given), [0]))
        elif name == "stored":
            yield lambda *call: session.submit(with_ballast, *call).result()[0]
        elif name == "chained":
            yield lambda *call: session.submit(same, session.submit(*call)).result()
        elif name == "joblib":
            import joblib

            from slotwise.integrations.joblib import SlotwiseBackend

            backend = SlotwiseBackend(session=session)

            def parallel(fn: Callable[..., Any], *given: Any) -> Any:
                with joblib.parallel_config(backend=backend, n_jobs=2):
                    return joblib.Parallel()([joblib.delayed(fn)(*given)] * 2)[1]

            yield parallel


def with_call(call: tuple[Any, ...]) -> Any:
    fn, *given = call
    return fn(*given)


def with_ballast(*call: Any) -> Any:
    """A result that is large, and passes in a file."""
    return with_call(call), bytes(1 << 20)


def in_a_job(fn: Callable[..., Any], *given: Any) -> Any:
    """The result of a call in a job of calls, through a second phase that takes it."""
    import slotwise

    first, second = (slotwise.Phase(name, slotwise.Tasks(1, 0.1)) for name in ("a", "b"))
    second = dataclasses.replace(second, after=("a",))
    job = slotwise.Job("j", (first, second))
    calls = slotwise.Calls(
        job, {"a": lambda task: fn(*given), "b": lambda task, results: results["a"][0]}
    )
    slotwise.run([calls], slots=1)
    return calls.results["b"][0]


if __name__ == "__main__":
    with path(sys.argv[1]) as made:
        main(made, fails=sys.argv[1] != "calls")
