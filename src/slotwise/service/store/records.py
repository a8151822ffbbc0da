"""What the store keeps of jobs, calls and tasks, and how rows of its tables hold it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, TypeVar

from slotwise.service.wire import frame, frames

OPEN = "open"
"""The state of what has not ended."""


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job that was accepted. Instants are Unix seconds.

    spec     its entry as JSON; of the kind `object` whatever stands for it
    environ  the hash of its environment; `Store.add` sets it
    state    `open`, or how it ended: done, failed, cancelled, lost
    account  the account of the system that it runs as; None: that of the server
    stream   the key of a stream of calls that is this job, with `closed`: no call follows
    changes  what was changed since it was submitted, as JSON
    """

    number: int
    id: str
    kind: str
    name: str = ""
    spec: bytes = b""
    environ: str | None = None
    folder: str = "/"
    pool: str = "default"
    priority: str = "normal"
    weight: float = 1.0
    deadline: float | None = None
    user: str | None = None
    after: tuple[str, ...] = ()
    tasks: int = 1
    submitted: float = 0.0
    begun: float | None = None
    ended: float | None = None
    state: str = OPEN
    reason: str = ""
    code: int | None = None
    result: bytes | None = None
    held: bool = False
    restarts: int = 0
    restart: bool = True
    stream: str | None = None
    closed: bool = False
    client: str | None = None
    account: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def arrival(self) -> float:
        """When it was submitted."""
        return self.submitted

    @property
    def predecessors(self) -> frozenset[str]:
        """The jobs that it waits for."""
        return frozenset(self.after)


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A call of a stream. `job` is the id of its job.

    parts     the pickled call and its inputs, None for the result of another call; removed
              when the call has ended
    inputs    JSON: None, or the key of a stream and the number of a call, for each part
    state     `open`, or how it ended: done, failed, cancelled
    is_value  of a call that is done, whether `value` is its value, and not what it raised
    printed   the path of its output
    begins    in how many servers it has begun that did not stop it in order
    """

    job: str
    number: int
    parts: tuple[bytes | None, ...] = ()
    inputs: Any = ()
    state: str = OPEN
    value: bytes | None = None
    is_value: bool | None = None
    printed: str = ""
    reason: str = ""
    ended: float | None = None
    begins: int = 0


class CallState(NamedTuple):
    """What is known of a call without its parts and its value; see `StoredCall`."""

    number: int
    state: str
    is_value: bool


@dataclass(frozen=True, slots=True)
class StoredTask:
    """How the last attempt of a task ended. `job` is the id of its job."""

    job: str
    task: int
    state: str
    attempt: int = 0
    code: int | None = None
    begun: float | None = None
    ended: float | None = None
    reason: str = ""
    phase: str = ""


Record = TypeVar("Record", StoredJob, StoredCall, StoredTask)
Keep = Callable[[bytes | None], bytes | str | None]
"""Turns bytes into what a row holds: the bytes, or the name of a file with them."""
Read = Callable[[bytes | str | None], bytes | None]
"""The opposite."""

_BYTES = {"spec", "result", "parts", "value"}
_PLAIN = {"after", "inputs", "changes"}
_FLAGS = {"held", "restart", "closed", "is_value"}


COLUMNS = {
    kind: tuple(one.name for one in fields(kind))
    for kind in (StoredJob, StoredCall, StoredTask)
}
"""The columns of the tables, in the order of the fields."""


def columns_of(kind: type[StoredJob | StoredCall | StoredTask]) -> str:
    """The columns of a query for records; of calls and tasks the first is the id of the job."""
    if kind is StoredJob:
        return ", ".join(COLUMNS[kind])
    table = "calls" if kind is StoredCall else "tasks"
    return ", ".join(["jobs.id", *(f"{table}.{name}" for name in COLUMNS[kind][1:])])


def row_of(record: StoredJob | StoredCall | StoredTask, keep: Keep) -> list[Any]:
    """The values of the columns of a record."""
    return [held(name, getattr(record, name), keep) for name in COLUMNS[type(record)]]


def held(name: str, value: Any, keep: Keep) -> Any:
    """What a column holds for a value."""
    if name == "parts":
        return keep(_joined(value))
    if name in _BYTES:
        return keep(value)
    if name in _PLAIN:
        return json.dumps(value)
    return value


def record_of(kind: type[Record], row: Sequence[Any], read: Read) -> Record:
    """The record of a row."""
    return kind(
        *(_value(name, one, read) for name, one in zip(COLUMNS[kind], row, strict=True))
    )


def storable(value: Any) -> Any:
    """A value as the database takes it: a string that is not Unicode, as of paths, as bytes."""
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
    return value


def text_of(value: str | bytes) -> str:
    """The opposite of `storable`, for a string."""
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


def _value(name: str, value: Any, read: Read) -> Any:
    if name == "parts":
        return _split(read(value))
    if name == "spec":
        return read(value) or b""
    if name in _BYTES:
        return read(value)
    if name in _PLAIN:
        plain = json.loads(value)
        return tuple(plain) if isinstance(plain, list) else plain
    if name in _FLAGS:
        return None if value is None else bool(value)
    return text_of(value) if isinstance(value, bytes) else value


def _joined(parts: Sequence[bytes | None]) -> bytes | None:
    """Parts as one string of bytes: a frame."""
    if not parts:
        return None
    present = "".join("01"[part is not None] for part in parts)
    return frame({"present": present}, [part for part in parts if part is not None])


def _split(data: bytes | None) -> tuple[bytes | None, ...]:
    if data is None:
        return ()
    header, found = next(frames(io.BytesIO(data)))
    left = iter(found)
    return tuple(next(left) if one == "1" else None for one in header["present"])
