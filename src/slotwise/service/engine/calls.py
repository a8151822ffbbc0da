"""Frames of calls: from the requests of clients to the streams of the engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slotwise.core.errors import InputError, shown
from slotwise.service.engine.engine import OVER, Engine, job_frame
from slotwise.service.engine.planning import Spec, Submitted
from slotwise.service.engine.rights import (
    MARK,
    LimitError,
    check_names,
    check_submits,
    may_see,
    plain_name,
    scoped,
    with_pool,
)
from slotwise.service.engine.streams import ServedStream, binding_of
from slotwise.service.store.records import OPEN, StoredCall, StoredJob
from slotwise.service.users.access import ForbiddenError, User
from slotwise.service.wire import frame

NUMBERS_MAX = 1 << 53
"""The numbers of calls are less: any JSON has them exactly."""

Frame = tuple[dict[str, Any], list[bytes]]

LEFT_SECONDS = 600.0
"""How long the jobs of a client whose connection has ended accept more calls."""

KEY_BYTES_MAX = 200
"""The maximum length of the key of a stream."""

CLOSED = (
    "its job accepts no more calls: it was cancelled, or closed while its client was not"
    " connected; submit it again"
)
"""Why a call is refused."""

LOOKED_UP = 500
"""How many jobs are looked up at once: then a thread can serve another request."""


class CallFrames:
    """Opens, extends, closes and cancels streams, as clients ask."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()  # Requests are handled one at a time.
        self._left: dict[str, float] = {}

    def handle(self, frames: Sequence[Frame], user: User) -> dict[str, Any]:
        """Handle frames of a user in order; what they add is durable on return.

        A stream or a call that is known already changes nothing.
        """
        with self._lock:
            return _CallBatch(self._engine, user).handle(frames)

    def ended(
        self, calls: Mapping[str, Any], jobs: Sequence[Any], user: User
    ) -> Iterator[bytes]:
        """The frames of those calls and jobs that are over; each is read when it is taken.

        Those that the user may not see are left out. Empty ones between them take a thread for
        no longer than a few milliseconds, whatever is asked for.
        """
        engine, store = self._engine, self._engine.store
        for key, numbers in calls.items():
            yield b""
            record = store.stream(key if MARK in key else scoped(user, engine.own, key))
            if record is None or not may_see(user, record, engine.settings):
                continue
            wanted = {int(number) for number in numbers}
            for one in store.call_states(record.id):
                is_wanted = one.state != OPEN and one.number in wanted
                if is_wanted and (call := store.call(record.id, one.number)):
                    yield call_frame(key, record.id, call)
        for at in range(0, len(jobs), LOOKED_UP):
            yield b""
            names = [str(name) for name in jobs[at : at + LOOKED_UP]]
            for job in store.jobs(ids=names, limit=len(names)):
                is_wanted = job.state in OVER and may_see(user, job, engine.settings)
                if is_wanted and (ended := store.job(job.id)):  # With its result.
                    yield job_frame(ended)

    def left(self, client: str) -> None:
        """Note that the connection of a client has ended: its streams will be closed."""
        self._left[client] = time.monotonic()

    def close_left(self, listening: Sequence[str]) -> None:
        """Close the streams of clients that have left long ago and are not `listening`.

        One whose calls are not over stays open: its client may come back for them.
        """
        now = time.monotonic()
        for client in self._engine.streams.clients():  # Also those of an earlier server.
            self._left.setdefault(client, now)
        for client, since in list(self._left.items()):
            has_left = now - since > LEFT_SECONDS
            if client in listening or (has_left and self._close_idle(client)):
                del self._left[client]

    def _close_idle(self, client: str) -> bool:
        """Close the streams of a client that have no calls; whether it has no others."""
        with self._lock:  # No call is being added.
            left = [one for one in self._engine.streams.of(client) if not one.is_closed]
            idle = [stream for stream in left if not stream.futures]
            for stream in idle:
                self._engine.store.close_stream(stream.record.id)
                self._engine.streams.close(stream)
        return len(idle) == len(left)


def call_frame(key: str, job: str, call: StoredCall) -> bytes:
    """What a client is sent at the end of a call of a job."""
    state = call.state
    if state == "done":
        state = "value" if call.is_value else "raised"
    header = {"stream": key, "number": call.number, "of_job": job, "state": state}
    header |= {"reason": call.reason, "printed": call.printed}
    return frame(header, () if call.value is None else (call.value,))


class _CallBatch:
    """The frames of one request: first they are stored, then they have their effect."""

    def __init__(self, engine: Engine, user: User) -> None:
        self._engine, self._user = engine, user
        self._opened: dict[str, tuple[StoredJob, Submitted]] = {}
        self._calls: dict[str, dict[int, StoredCall]] = {}
        self._refused: dict[str, str] = {}
        self._closed = set[str]()
        self._names: dict[str, str] = {}

    def handle(self, frames: Sequence[Frame]) -> dict[str, Any]:
        try:
            steps = self._stored(frames)
        except BaseException:
            for record, _ in self._opened.values():
                self._engine.quota.free(record.user, [record.id])
            raise
        streams = self._engine.streams
        for what, key, number in steps:
            if what == "open":
                record, submitted = self._opened[key]
                entry = submitted.entry
                streams.open(
                    record, binding_of(entry["binding"]), entry["program"], grows=entry["grows"]
                )
                continue
            stream = streams.get(key)
            if stream is None:
                if what == "call":  # Its job was cancelled meanwhile.
                    self._refused[key] = CLOSED
                continue
            if what == "call":
                self._add(stream, number)
            elif what == "close":
                streams.close(stream)
            else:
                streams.cancel(stream, [number])
        jobs = {plain_name(key): job for key, job in self._names.items()}
        return {"jobs": jobs, "refused": {plain_name(k): v for k, v in self._refused.items()}}

    def _stored(self, frames: Sequence[Frame]) -> list[tuple[str, str, int]]:
        """Store what the frames add; the steps that have their effect then."""
        steps = [step for header, parts in frames if (step := self._step(header, parts))]
        names = self._names
        self._engine.store.add_calls(
            {names[key]: list(calls.values()) for key, calls in self._calls.items()},
            [record for record, _ in self._opened.values()],
            [names[key] for what, key, _ in steps if what == "close"],
        ).result()
        return steps

    def _add(self, stream: ServedStream, number: int) -> None:
        try:
            self._engine.streams.add(stream, number, self._calls[stream.key][number])
        except InputError as error:  # The pools have changed since it was opened.
            self._refused[stream.key] = str(error)
            self._engine.streams.cancel(stream)

    def _step(
        self, header: Mapping[str, Any], parts: list[bytes]
    ) -> tuple[str, str, int] | None:
        """Check a frame and note what it adds; None if it changes nothing."""
        what, key = header.get("op"), header.get("stream")
        if not isinstance(key, str) or not 0 < len(key) <= KEY_BYTES_MAX:
            raise InputError(f"stream is {shown(key)}; give a string")
        key = self._scoped(key)
        if what == "open":
            return self._open(key, header)
        if key in self._refused:
            return None
        if self._name(key) is None:
            raise InputError(
                f"stream {plain_name(key)!r} is not open; send its open frame first"
            )
        number = header.get("number", 0)
        if not _is_number(number):
            raise InputError(
                f"stream {plain_name(key)!r}: number is {shown(number)}; give a whole number"
            )
        if what == "call":
            return self._call(key, number, header, parts)
        if what == "close":
            self._closed.add(key)
        if what in ("close", "cancel"):
            return str(what), key, number
        raise InputError(f"stream {plain_name(key)!r}: unknown op {shown(what)}")

    def _name(self, key: str) -> str | None:
        if key not in self._names and (record := self._engine.store.stream(key)):
            self._names[key] = record.id
        return self._names.get(key)

    def _open(self, key: str, header: Mapping[str, Any]) -> tuple[str, str, int] | None:
        if self._name(key) is not None:
            return None
        engine, now = self._engine, time.time()
        stated: Mapping[str, Any] = header.get("binding") or {}
        if not isinstance(stated, dict):
            raise InputError(
                f"stream {plain_name(key)!r}: binding is {shown(stated)}; give an object"
            )
        try:
            check_names(self._user, stated.get("user"))
            owner = engine.owner(stated.get("user"), self._user)
            if owner.name != engine.own.name:
                stated = {**stated, "user": owner.name}
            stated = with_pool(self._user, stated, engine.settings)
            binding = binding_of(stated)
            grows, program = bool(header.get("grows")), str(header.get("program") or "")
            job = binding.job(grows=grows)
            engine.account_of(owner.name)
            engine.check_pool(job.pool)
            engine.core.check_job(job)
            check_submits(self._user, job.pool, engine.settings)
            number, id = engine.store.new_id(binding.name)
            engine.quota.reserve(owner.name, {id: 0}, owner.jobs_max)
        except (InputError, ForbiddenError, LimitError) as error:
            self._refused[key] = str(error)
            return None
        entry = {
            "binding": stated,
            "grows": grows,
            "program": program,
        }
        due = None if binding.deadline is None else now + binding.deadline
        restart = header.get("restart", True) is not False
        submitted = Submitted("calls", entry, due, restart, {})
        client = str(header.get("client") or "")
        record = StoredJob(
            number=number,
            id=id,
            kind="calls",
            name=program,
            spec=Spec(submitted, {}).packed(),
            pool=binding.pool,
            priority=binding.priority,
            weight=binding.weight,
            deadline=due,
            submitted=now,
            tasks=0 if grows else 1,
            restart=restart,
            stream=key,
            client=client and self._scoped(client),
            user=owner.name,
            account=engine.account_name(owner),
        )
        self._opened[key] = record, submitted
        self._names[key] = id
        return "open", key, 0

    def _call(
        self, key: str, number: int, header: Mapping[str, Any], parts: list[bytes]
    ) -> tuple[str, str, int] | None:
        stream = self._engine.streams.get(key)
        if number in self._calls.get(key, ()) or (stream and number in stream.numbers):
            return None
        if key in self._closed or (key not in self._opened and _is_closed(stream)):
            if self._engine.store.call(self._names[key], number) is None:
                self._refused[key] = CLOSED
            return None  # Else it is known.
        inputs = header.get("inputs", [None])
        if not isinstance(inputs, list) or inputs[:1] != [None]:
            raise InputError(
                f"stream {plain_name(key)!r}: inputs is {shown(inputs)}; begin it with null"
            )
        if sum(one is None for one in inputs) != len(parts):
            raise InputError(
                f"stream {plain_name(key)!r}: call {number} has {len(parts)} parts"
            )
        if not all(one is None or self._can_have(one) for one in inputs):
            raise InputError(
                f"stream {plain_name(key)!r}: inputs of call {number} is {shown(inputs)}; give"
                " null, or [stream, number] of a call that was sent before"
            )
        inputs = [one and [self._scoped(one[0]), one[1]] for one in inputs]
        given = iter(parts)
        aligned = tuple(next(given) if one is None else None for one in inputs)
        record = StoredCall(self._names[key], number, aligned, inputs)
        self._calls.setdefault(key, {})[number] = record
        return "call", key, number

    def _scoped(self, name: str) -> str:
        return scoped(self._user, self._engine.own, name)

    def _can_have(self, reference: Any) -> bool:
        """Whether it names a call, and none that is still to come: calls must not wait for
        each other in a circle."""
        match reference:
            case [str(name), number] if isinstance(reference, list) and _is_number(number):
                key = self._scoped(name)
                stream = self._engine.streams.get(key)
                if stream is None and key not in self._opened:
                    return True  # It is over, refused or unknown, so that nothing waits for it.
                is_known = stream is not None and number in stream.numbers
                return is_known or number in self._calls.get(key, ())
        return False


def _is_closed(stream: ServedStream | None) -> bool:
    """Whether a stream that was opened before accepts no more calls."""
    return stream is None or stream.is_closed


def _is_number(number: Any) -> bool:
    return type(number) is int and 0 <= number < NUMBERS_MAX
