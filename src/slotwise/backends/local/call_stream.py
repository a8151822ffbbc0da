"""A job whose tasks are calls of Python functions, added while it runs."""

from __future__ import annotations

import hmac
import inspect
import json
import multiprocessing
import os
import pickle
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from glob import escape, glob
from itertools import count, islice, zip_longest
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar, cast

from slotwise import task as running
from slotwise.backends.local.worker import pickled, summary
from slotwise.core.errors import SlotwiseError, WorkFolderError
from slotwise.core.job import Job, PhaseId
from slotwise.core.tracebacks import error_line, format_traceback
from slotwise.jobs.accounts import Account
from slotwise.jobs.execution import Execution, FailedAttemptError
from slotwise.jobs.hosts.sockets import NAME_VARIABLE, lacking
from slotwise.jobs.pickling import faulty_part, sending, sent_by_value
from slotwise.jobs.transfer import (
    Handle,
    TransferFolders,
    content,
    discard,
    get,
    loaded,
    pack,
    unpack,
)

# Files of large arguments and results, which the caller and the calls map into memory.


class StoredResult:
    """A large value in a file, which is removed when this object is no longer referenced.

    It is referenced by the future of a result, and by the calls that wait for the value or run
    with it.
    """

    __slots__ = ("__weakref__", "_content", "handle")

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self._content: memoryview[int] | None = None
        removes = weakref.finalize(self, _remove, handle.path, os.getpid())
        removes.atexit = False  # The folder is removed then.

    def value(self) -> object:
        """The unpickled value. Raises what unpickling raises."""
        if self._content is None:
            return get(self.handle)
        return loaded(self.handle, self._content)

    def hold(self) -> None:
        """Map the file, so that the value stays available when the file is removed."""
        if self._content is None:
            self._content = content(self.handle)


class CallFiles:
    """The files of large arguments and results of all calls of a session.

    If the process is killed, the next session of the same user removes them.
    """

    def __init__(self, *, is_local: bool = True, stores: bool = True) -> None:
        """If not `is_local`, calls run on other hosts without these files, and get pickles.

        If it does not `store` anything, large results are pickles, too.
        """
        self._is_local = is_local
        self._folders = TransferFolders()
        self._stored: weakref.WeakSet[StoredResult] = weakref.WeakSet()
        self._numbers, self._arguments = count(), count()
        if stores:
            with suppress(WorkFolderError):  # Without a folder, large results are pickles.
                self._folders.open("a session")

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders for results in order of preference; the last one is on disk."""
        return self._folders.paths

    def new_number(self) -> int:
        """A number for a job of calls, with which the names of its files begin."""
        return next(self._numbers)

    def new_folder(self) -> str:
        """The path of a new folder on disk, which does not exist yet; `close` removes it."""
        return os.path.join(self.folders[-1], f"folder-{self.new_number()}")

    def pack(self, value: object) -> bytes | StoredResult:
        """Pickle a value for a call, into a file if it is large. Raises like `pickle`."""
        folders = self.folders if self._is_local else ()
        packed = pack(value, folders, f"argument-{next(self._arguments)}")
        return self.keep(packed) if isinstance(packed, Handle) else packed

    def keep(self, handle: Handle) -> StoredResult:
        """Take ownership of the file of a result."""
        stored = StoredResult(handle)
        self._stored.add(stored)
        return stored

    def discard(self, name: str) -> None:
        """Remove the file of an attempt that has failed or was stopped, if it exists."""
        discard(self.folders, name)

    def discard_all(self, prefix: str) -> None:
        """Remove the files whose names begin with `prefix`. O(files)."""
        for folder in self.folders:
            for path in glob(f"{escape(os.path.join(folder, prefix))}*"):
                _remove(path, os.getpid())

    def close(self) -> None:
        """Remove all files. Results that a future references stay in mapped memory."""
        for stored in list(self._stored):
            with suppress(OSError):
                stored.hold()
        self._folders.remove()


def _remove(path: str, pid: int) -> None:
    if os.getpid() == pid:  # A forked child does not own the file.
        with suppress(OSError):
            os.unlink(path)


T = TypeVar("T")

Call = tuple[bytes | StoredResult, ...]
"""The pickle of a function with its arguments, then its inputs; large ones are in files."""

LOSSES_MAX = 4
"""How often a call may lose its worker process before it fails."""


SMALL = frozenset((type(None), bool, int, float))
"""Types that are pickled without the search for large parts, which takes longer."""

FUNCTIONS = frozenset((FunctionType, BuiltinFunctionType))
"""Types of functions that hold no large value, unlike a partial."""


class CallResult:
    """The pickled value or exception of a call; a large value is in a file."""

    __slots__ = ("is_value", "packed", "printed")

    def __init__(self, is_value: bool, packed: bytes | StoredResult, printed: str = "") -> None:
        """`is_value` if the call returned; otherwise it raised.

        `printed` is the file with its output, which the cause of an exception names.
        """
        self.is_value, self.packed, self.printed = is_value, packed, printed

    def value(self) -> object:
        """The value that the call returned. Raises what unpickling raises."""
        assert self.is_value
        packed = self.packed
        return packed.value() if isinstance(packed, StoredResult) else pickle.loads(packed)

    def error(self) -> BaseException:
        """The exception of the call; its cause has the traceback in the worker process."""
        assert not self.is_value
        packed, text = pickle.loads(cast(bytes, self.packed))
        if self.printed:
            text = f"{text}\nits output: {self.printed}"
        try:
            error = pickle.loads(packed)
            error.__cause__ = RemoteTraceback(text)
            if isinstance(error, BaseException):
                return error
            problem = f"its pickle gives {error!r}"
        except BaseException as unreadable:
            problem = summary(unreadable)
        message = f"{error_line(text)} (the exception itself cannot be read: {problem})"
        substitute = SlotwiseError(message)
        substitute.__cause__ = RemoteTraceback(text)
        return substitute


class CallStream(Execution):
    """A job of one phase whose tasks are calls; `append` may be called from any thread.

    An exception that a call raises is its result, and the call is not repeated, unless its job
    states `attempts`. A call that loses its worker process is repeated. It fails after
    `LOSSES_MAX` times, or `attempts_max` if it has ended the process itself, and the other
    calls continue.
    """

    runner_key = "slotwise call"

    def __init__(self, job: Job, files: CallFiles, attempts_max: int) -> None:
        """Of a task that fails `attempts_max` times the whole job would fail."""
        self.job = job
        self._crashes_max = min(LOSSES_MAX, attempts_max)
        self.runner: Callable[..., object] = CallRunner(files.folders)
        self._files, self._number = files, files.new_number()
        self._calls: dict[int, Call] = {}
        self._bad_ends: dict[tuple[int, bool], int] = {}  # by task, and whether it was lost
        self.phase = PhaseId(job.id, job.phases[0].name)
        self._printed = -1, ""  # The last task that has printed, and the file with its output.
        self.count = self.taken = 0  # The calls added, and those that the loop has taken.
        self._is_put = False

    def runs_as(self, account: Account | None) -> None:
        """Run the calls as an account; call it before the first one is added.

        Its runner has a key that no job can have as its id, and another authkey.
        """
        if account is not None:
            self.account = account
            self.runner_key = f"{CallStream.runner_key}\n{account.name}"
            self.runner = CallRunner(self._files.folders, account.name)

    @abstractmethod
    def may_start(self, task: int) -> bool:
        """Note that a call is about to start; return False if it was cancelled."""

    @abstractmethod
    def stopped(self, task: int) -> None:
        """Note that a call was stopped before it was done; it will start again."""

    @abstractmethod
    def done(self, task: int, result: CallResult) -> None:
        """Pass on the result of a call."""

    def append(self, call: Call) -> bool:
        """Add a call, as the task with the number `count`; the caller holds a lock.

        Returns whether to put the stream into the inbox, unless an earlier entry is left.
        """
        self._calls[self.count] = call
        self.count += 1
        was_put, self._is_put = self._is_put, True
        return not was_put

    def take_new(self) -> int:
        """The number of calls added since the last call. Called by the loop's thread."""
        self._is_put = False  # Before counting, so that calls added now put it again.
        count = self.count
        new, self.taken = count - self.taken, count
        return new

    def begins_at(self, phase: str, task: int, attempt: int, address: str) -> bool:
        """Return False if a call was cancelled, so that its task is done without a worker."""
        if self.may_start(task):
            return True
        self._calls.pop(task, None)
        return False

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """The numbers that name the file of the attempt, and the call with its inputs."""
        parts = (i.handle if isinstance(i, StoredResult) else i for i in self._calls[task])
        return (self._number, task, attempt, *parts)

    def describe(self, phase: str, task: int) -> str:
        """The names of the call and the job, for messages."""
        return f"call {task} of {self.job.id}"

    def printed(self, phase: str, task: int, path: str) -> None:
        """Note the file with the output of a call that has just ended."""
        self._printed = task, path

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Pass on the result of a call, which stays pickled. Raises ValueError if invalid."""
        if not isinstance(result, bytes) or result[:1] not in (VALUE, RAISED, STORED):
            raise ValueError("it is not the result of a call")
        kind, packed = result[:1], result[1:]
        if kind == RAISED and self._bad_ends.get((task, False), 0) + 1 < self._attempts:
            raise FailedAttemptError(error_line(_plain(packed)[1]))
        if kind != STORED:
            last, path = self._printed
            self._end(task, CallResult(kind == VALUE, packed, path if last == task else ""))
            return
        if len(packed) > SPANS_BYTES_MAX:
            raise ValueError("it has too many parts")
        folder, *spans = json.loads(packed)
        # The worker does not choose the path: the file is removed with the result.
        path = os.path.join(self._files.folders[folder], file_name(self._number, task, attempt))
        handle = Handle((), path, tuple((int(start), int(size)) for start, size in spans))
        self._end(task, CallResult(True, self._files.keep(handle)))

    def absorbs(
        self, phase: str, task: int, reason: str, *, is_lost: bool, is_own: bool
    ) -> bool:
        """Whether a failed attempt is the result of its call, and is not repeated."""
        is_loss = is_lost and not is_own
        self._bad_ends[task, is_loss] = count = self._bad_ends.get((task, is_loss), 0) + 1
        is_crash = is_own and not self.job.attempts
        most = self._crashes_max if is_crash else self._attempts
        if count < (LOSSES_MAX if is_loss else most):
            return False
        self._files.discard_all(file_name(self._number, task))
        error = lost_call(reason) if is_loss or is_crash else SlotwiseError(reason)
        self._end(task, CallResult(False, pickle.dumps((pickle.dumps(error), reason))))
        return True

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """Remove the result file of an attempt that was stopped or has failed."""
        self._files.discard(file_name(self._number, task, attempt))
        if task in self._calls:
            self.stopped(task)

    @property
    def _attempts(self) -> int:
        return self.job.attempts or 1

    def _end(self, task: int, result: CallResult) -> None:
        self._calls.pop(task, None)
        for is_loss in (False, True) if self._bad_ends else ():
            self._bad_ends.pop((task, is_loss), None)
        self.done(task, result)


def _plain(packed: bytes) -> tuple[bytes, str]:
    """What `failure` has returned. ValueError for anything else.

    A task may have sent anything, such as lists that take much memory, or tuples of tuples
    whose text has no end. So nothing is unpickled: its two values are read where they stand.
    """
    from pickletools import genops  # Needed rarely.

    try:
        steps = list(islice(genops(packed), PLAIN_STEPS_MAX))
        (error, text) = (stated for step, stated, _ in steps if step.name not in FRAMING)
    except Exception as wrong:
        raise ValueError(f"it is not the error of a call: {wrong}") from wrong
    if not (isinstance(error, bytes) and isinstance(text, str)):
        raise ValueError("it is not the error of a call")
    return error, text


PLAIN_STEPS_MAX = 12
"""The most steps of the pickle of a pair of bytes and a string."""

FRAMING = frozenset(("PROTO", "FRAME", "MEMOIZE", "TUPLE2", "STOP"))
"""The steps of such a pickle that are none of its values."""

SPANS_BYTES_MAX = 1 << 20
"""The most bytes of the places in a file that a worker may state."""


def lost_call(reason: str) -> SlotwiseError:
    """The error of a call that has lost its worker process `LOSSES_MAX` times."""
    return LostCallError(reason)


class RemoteTraceback(Exception):
    """The formatted traceback in the worker process, as the cause of a call's exception."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.tb = text  # The name of this attribute in ProcessPoolExecutor.

    def __str__(self) -> str:
        return f"\n{self.tb}"


def pickled_call(
    fn: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    files: CallFiles,
) -> tuple[bytes | StoredResult, list[Any]]:
    """Pickle a call; returns the pickle and the inputs of the call.

    Inputs are futures and shared inputs anywhere within the arguments. A large call is written
    to a file, which takes one copy. Raises what pickling raises.
    """
    is_small = not kwargs and type(fn) in FUNCTIONS and SMALL.issuperset(map(type, args))
    try:
        return _with_inputs(
            lambda: pickled((fn, args, kwargs)) if is_small else files.pack((fn, args, kwargs))
        )
    except Exception as error:
        if reason := _unsendable(fn, args, kwargs):
            kind = TypeError if isinstance(error, TypeError) else pickle.PicklingError
            raise kind(reason) from error
        raise


def _unsendable(
    fn: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> str:
    """Why an argument of a call cannot be pickled: its name, and the part that cannot be.

    Empty if each can be alone, or if the error has its own remedy.
    """
    for name, value in [*_by_position(fn, args), *kwargs.items()]:
        whole = _fault(value)
        if whole is None:
            continue
        if type(whole).__module__.startswith("slotwise."):
            return ""
        place, part = faulty_part(value, lambda one: _fault(one) is not None)
        error, what = _fault(part), f"argument {name if isinstance(name, int) else repr(name)}"
        if isinstance(error, pickle.PicklingError):  # It names a value that a function uses.
            return f"{what}{place and f', in {place}'}: {error}"
        found = (
            f"{what}, of type {type(value).__name__}, has {place}" if place else f"{what} is"
        )
        return (
            f"{found} of type {type(part).__name__}, which cannot be sent to another process:"
            f" {error}; create it in the function, or pass what it is created from"
        )
    return ""


def _by_position(
    fn: Callable[..., object], args: tuple[object, ...]
) -> Iterator[tuple[str | int, object]]:
    """The positional arguments of a call with their names, or their numbers from 1."""
    try:
        parameters = [*inspect.signature(fn).parameters.values()]
    except (TypeError, ValueError):  # A function in native code may have none.
        parameters = []
    for number, (one, value) in enumerate(zip_longest(parameters[: len(args)], args), 1):
        is_named = one is not None and one.kind is one.POSITIONAL_OR_KEYWORD
        yield one.name if is_named else number, value


def _fault(value: object) -> Exception | None:
    """The error of pickling a value as part of a call, or None."""
    try:
        _with_inputs(lambda: sent_by_value(value))
    except Exception as error:
        return error
    return None


def _with_inputs(pack: Callable[[], T]) -> tuple[T, list[Any]]:
    """The result of `pack`, and the inputs that it has found."""
    # Pickling an argument of another call may submit this one.
    outer = getattr(_collected, "inputs", None)
    inputs = _collected.inputs = []
    outer_sending, sending.now = sending.now, True
    try:
        return pack(), inputs
    finally:
        _collected.inputs, sending.now = outer, outer_sending


class SharedInput:
    """A value that is an input of many calls, pickled once, at its creation.

    Raises what pickling raises.
    """

    def __init__(self, value: object, files: CallFiles) -> None:
        self._pickle, inputs = _with_inputs(lambda: files.pack(value))
        if inputs:
            raise TypeError("futures within it are inputs of each call")

    def __reduce__(self) -> tuple[Any, ...]:
        return input_of_call, (number_of_input(self),)

    # The methods of a future that is done.

    def _is_of(self, control: object) -> bool:
        """True: it is valid in any session."""
        return True

    def _when_done(self, step: Callable[[], None]) -> None:
        """Call `step` at once."""
        step()

    def cancelled(self) -> bool:
        """False."""
        return False

    def _raised(self) -> None:
        """None: it has no exception."""

    def _packed(self) -> bytes | StoredResult:
        """The pickle, or the file of a large one."""
        return self._pickle


def number_of_input(future: object) -> int | None:
    """The number of an input in the call that this thread pickles; None without a call."""
    inputs: list[object] | None = getattr(_collected, "inputs", None)
    if inputs is None:
        return None
    for number, other in enumerate(inputs):
        if other is future:
            return number
    inputs.append(future)
    return len(inputs) - 1


def input_of_call(number: int) -> object:
    """The value of an input, in the worker process in which the call is unpickled."""
    packed = _collected.inputs_packed[number]
    if number not in _collected.values:
        _collected.values[number] = unpack(packed)
    return _collected.values[number]


_collected = threading.local()


def file_name(stream: int, task: int, attempt: int | str = "") -> str:
    """The name of the file of an attempt; without an attempt, the prefix for its task."""
    return f"{stream}-{task}-{attempt}"


class CallRunner:
    """The runner of calls. It is unpickled as `run_call`, and sets the caller's authkey.

    With the key of `multiprocessing`, calls can use the managers of the caller, as in the
    processes of a ProcessPoolExecutor.
    """

    def __init__(self, folders: tuple[str, ...], account: str = "") -> None:
        """`folders` are those for large values. Each account has a key of its own."""
        self._folders, self._account = folders, account

    def __call__(self, *arguments: Any) -> bytes:
        """Run a call in this process."""
        return run_call(self._folders, *arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        key = bytes(multiprocessing.current_process().authkey)
        if self._account:
            key = hmac.digest(key, self._account.encode(), "sha256")
        return _runner_with_key, (self._folders, key)


def _runner_with_key(folders: tuple[str, ...], key: bytes) -> Callable[..., object]:
    multiprocessing.current_process().authkey = key
    return partial(run_call, folders)


VALUE, RAISED, STORED = b"v", b"e", b"f"
"""The first byte of the result of a call. The rest is the pickle of the value, what `failure`
returns, or for a value in a file JSON: the index of the folder, then the spans of the parts."""


def run_call(
    folders: tuple[str, ...],
    stream: int,
    task: int,
    attempt: int,
    call: bytes | Handle,
    *inputs: bytes | Handle,
) -> bytes:
    """Run a call in a worker process; return its result for `CallStream.finished`.

    A large value is written to a file in one of the folders.
    """
    try:
        _collected.inputs_packed, _collected.values = inputs, {}
        fn, args, kwargs = unpack(call)
        _collected.inputs_packed = _collected.values = None
        value = fn(*args, **kwargs)
        if type(value) in SMALL:
            return VALUE + pickle.dumps(value, protocol=5)
        packed = pack(value, folders, file_name(stream, task, attempt))
        if isinstance(packed, bytes):
            return VALUE + packed
        where = folders.index(os.path.dirname(packed.path))
        return STORED + json.dumps([where, *packed.spans]).encode()
    except running.Stopped:
        raise
    except BaseException as error:
        return RAISED + failure(error)


def failure(error: BaseException) -> bytes:
    """Pickle an exception for a `CallResult`, separately from its formatted traceback.

    The traceback can then be read even if the exception cannot. On a host of a cluster, both
    name the host.
    """
    text = format_traceback(error)
    if host := os.environ.get(NAME_VARIABLE):
        remedy = lacking(summary(error), host)
        text = f"on host {host}: {text}"
        with suppress(Exception):  # The class of the exception may override `add_note`.
            error.add_note(f"on host {host}" + (f"; {remedy}" if remedy else ""))
    error.__traceback__ = None
    try:
        packed = pickled(error)
    except Exception:
        packed = pickle.dumps(SlotwiseError(f"{type(error).__name__}: {error}"))
    return pickle.dumps((packed, text))


class LostCallError(SlotwiseError, BrokenProcessPool):
    """The worker process of a call ended abruptly several times.

    It is a BrokenProcessPool, so that code for a ProcessPoolExecutor catches it. The executor
    is not broken: other calls continue, and new ones are accepted.
    """
