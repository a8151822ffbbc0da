"""Calls as a client sends them, and the jobs of calls that they belong to."""

from __future__ import annotations

import os
import pickle
import site
import sys
import sysconfig
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar, cast

from slotwise.backends.local.call_stream import Call, SharedInput
from slotwise.core.errors import InputError
from slotwise.core.job import Job
from slotwise.core.resources import resources_of
from slotwise.jobs.transfer import MAX_INLINE, on_path
from slotwise.service.clients.outbox import Outbox, Sent
from slotwise.service.wire import PART_BYTES_MAX, frame
from slotwise.sessions.calls import CallSubmitter, OpenStream
from slotwise.sessions.futures import Future

T = TypeVar("T")


class CallsOwner(Protocol):
    """The interface of a client for its jobs of calls."""

    id: str
    outbox: Outbox

    def new_key(self) -> str:
        """A name for a job of calls that no other client uses."""
        ...

    def forget_if_over(self, calls: RemoteCalls) -> None:
        """Forget a job of calls that is over; the caller holds the lock."""
        ...


class RemoteCalls:
    """A job of calls in a server, with the futures of those that are not done by task."""

    def __init__(self, core: CallsOwner, job: Job) -> None:
        self._core, self._job = core, job
        self.key = core.new_key()
        self.job = ""  # The id, which the server chooses.
        self.grows = self._is_open = job.phases[0].grows
        self.count = 0
        self.of_task: dict[int, Future[Any]] = {}
        self.restart = True

    def add(self, future: Future[Any], call: tuple[Any, ...]) -> None:
        """Submit a call; the caller holds the lock.

        An item of the call is the pickle of the function or an input, or the key and the number
        of the call whose result is the input.
        """
        inputs = [list(one) if isinstance(one, tuple) else None for one in call]
        parts: list[bytes] = [one for one in call if isinstance(one, bytes)]
        if any(len(part) > PART_BYTES_MAX for part in parts):
            raise InputError(
                f"a call has an argument of more than {PART_BYTES_MAX >> 30} GiB; pass it in a"
                " file"
            )
        number = self.count
        header = {"op": "call", "stream": self.key, "number": number, "inputs": inputs}
        sent = Sent(frame(header, parts), self, number)
        future.job, future.task = self.job, number
        future._origin = self.key, number
        self.of_task[number] = future
        self.count += 1
        self._core.outbox.put(*([] if number else [self._opening()]), sent)

    def _opening(self) -> Sent:
        job, (phase,) = self._job, self._job.phases
        binding = {
            "name": job.id,
            "pool": job.pool,
            "weight": job.weight,
            "deadline": job.deadline,
            "priority": job.priority,
            "slots": phase.slots,
            "slots_max": phase.slots_max,
            "attempts": job.attempts,
            "retry_delay": job.retry_delay,
            "time_limit": job.time_limit,
            "time_requested": job.time_requested,
            "resources": resources_of("resources", phase.resources).stated(),
            "user": job.user,
        }
        opening = {"op": "open", "stream": self.key, "binding": binding, "grows": self.grows}
        about = {"program": job.program, "client": self._core.id, "restart": self.restart}
        return Sent(frame({**opening, **about}), self)

    def end(self) -> None:
        """Accept no more calls; the caller holds the lock. Idempotent."""
        if self._is_open:
            self._is_open = False
            if self.count:
                self._core.outbox.put(Sent(frame({"op": "close", "stream": self.key}), self))
            self._core.forget_if_over(self)

    def cancelled(self, number: int) -> None:
        """Stop a call that was cancelled; the caller holds the lock."""
        if self.of_task.pop(number, None) is not None:
            header = {"op": "cancel", "stream": self.key, "number": number}
            self._core.outbox.put(Sent(frame(header), self))
            self._core.forget_if_over(self)

    def renew(self) -> None:
        """Begin another job for later calls, because one was not accepted.

        The caller holds the lock.
        """
        if self.job and self.grows:
            self._core.outbox.put(Sent(frame({"op": "close", "stream": self.key}), self))
        self.key, self.job, self.count = self._core.new_key(), "", 0
        self.of_task = {}

    @property
    def is_over(self) -> bool:
        """Whether no call is left and none can come."""
        return not self.of_task and not self._is_open


class RemoteSubmitter(CallSubmitter):
    """Submits calls at once, also those that wait for the results of other calls.

    restart  whether they run again if the server ends while one of them runs
    """

    restart = True

    def _stream(self, program: str) -> OpenStream:
        stream = super()._stream(program)
        if isinstance(stream, RemoteCalls):
            stream.restart = self.restart
        return stream

    def _wait(
        self,
        future: Future[Any],
        program: str,
        call: Any,
        inputs: Sequence[Future[Any] | SharedInput],
    ) -> None:
        given = [input_of(one) for one in inputs]
        if any(one is None for one in given):
            super()._wait(future, program, call, inputs)
        else:
            self._add(future, program, (call, *given), had_waited=False)

    def _add(self, future: Future[Any], program: str, call: Call, *, had_waited: bool) -> None:
        packed, *inputs = call
        assert isinstance(packed, bytes)
        located: Call = (on_path(own_folders(), packed), *inputs)
        super()._add(future, program, located, had_waited=had_waited)

    def shared(self, fn: Callable[..., T]) -> Callable[..., T]:
        """A substitute for a function in the chunks of a map.

        A large one is sent once, as the result of a call.
        """
        made = super().shared(fn)
        packed = made._packed() if isinstance(made, SharedInput) else b""
        if isinstance(packed, bytes) and len(packed) > MAX_INLINE:
            return cast(Callable[..., T], _Loaded(self.submit(same, (packed,), {})))
        return made


class _Loaded:
    """Its pickle is loaded as what the result of a call, itself a pickle, stands for."""

    def __init__(self, packed: Future[bytes]) -> None:
        self._packed = packed

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._packed,)


def same(value: T) -> T:
    """The value itself."""
    return value


def own_folders() -> tuple[str, ...]:
    """The folders from which this process imports modules, but not those of packages."""
    return _own_folders(tuple(sys.path), os.getcwd() if "" in sys.path else "")


@cache
def _own_folders(path: tuple[str, ...], current: str) -> tuple[str, ...]:
    installed = {*sysconfig.get_paths().values(), *site.getsitepackages()}
    places = (os.path.abspath(place or current) for place in path)
    return tuple(
        place
        for place in dict.fromkeys(places)
        if os.path.isdir(place) and not any(map(place.startswith, installed))
    )


def input_of(one: Future[Any] | SharedInput) -> Any:
    """An input as a part of a call; None if the client must wait for it.

    A call of this client that is not done, or has a large result, is a reference.
    """
    if isinstance(one, SharedInput):
        return one._packed()
    if not one.done():
        return one._origin
    if one.cancelled() or one._raised() is not None:
        return None
    packed = one._packed()
    assert isinstance(packed, bytes)
    return one._origin if one._origin and len(packed) > MAX_INLINE else packed
