"""Messages and greetings from any bytes: what is invalid is one error, and runs no code."""

from __future__ import annotations

import json
import pickle
import socket
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slotwise.jobs.hosts.auth import NONCE_BYTES, RefusedError, greeting
from slotwise.jobs.hosts.messages import (
    LENGTH,
    Message,
    MessageError,
    MessageStream,
    encoded,
    frame,
)

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.lists(st.lists(PLAIN | st.binary(max_size=200), max_size=6), max_size=4)


class Opened(BaseException):
    """A pickle was opened."""


class Bomb:
    """A value whose pickle runs code."""

    def __reduce__(self) -> tuple[object, ...]:
        return exec, (f"from {__name__} import Opened; raise Opened",)


SOCKET = socket.socket()  # Nothing is sent.
BOMB = pickle.dumps(Bomb())


def sent(messages: list[Message]) -> bytes:
    """The bytes of messages."""
    return b"".join(map(encoded, messages))


def received(data: bytes, cuts: list[int]) -> tuple[list[Message], bool]:
    """The messages in bytes that come in pieces, and whether the rest is invalid."""
    stream, at = MessageStream(SOCKET), 0
    found: list[Message] = []
    try:
        for end in (*sorted(cut % (len(data) + 1) for cut in cuts), len(data)):
            found.extend(stream.feed(data[at:end]))
            at = end
    except MessageError:
        return found, True
    return found, False


@given(MESSAGES, st.lists(st.integers(0, 10_000), max_size=8))
@example([["start", BOMB, b""], [BOMB]], [1, 5, 90])
def test_messages_arrive_as_they_were_sent(messages: list[Message], cuts: list[int]) -> None:
    """In pieces of any size; payloads stay closed."""
    assert received(sent(messages), cuts) == (messages, False)


@given(MESSAGES, st.integers(0, 10_000), st.binary(max_size=60), st.booleans())
@example([], 0, BOMB, True)
@example([], 0, frame(BOMB), True)
@example([], 0, frame(b"\x91" * 60_000), True)
@example([], 0, b"\xdf\xff\xff\xff\xff", True)
@example([], 0, b"\xc7\x0c\xff" + bytes(12), True)
@example([], 0, LENGTH.pack(2**32 - 1), True)
def test_random_and_truncated_bytes_are_at_most_one_error(
    messages: list[Message], cut: int, noise: bytes, is_framed: bool
) -> None:
    """Whole messages before them arrive; after them come messages or a MessageError."""
    whole = sent(messages)
    cut %= len(whole) + 1
    found, is_invalid = received(whole[:cut], [])
    assert (found, is_invalid) == (messages[: len(found)], False)
    found, _ = received(whole + (frame(noise) if is_framed else noise), [])
    assert found[: len(messages)] == messages


def outcome(steps: Generator[int | bytes, bytes, Any], data: bytes) -> str:
    """How a greeting ends that receives these bytes."""
    try:
        wanted = next(steps)
        while True:
            if isinstance(wanted, bytes):
                wanted = next(steps)
            elif len(data) < wanted:
                wanted = steps.throw(EOFError())
            else:
                taken, data = data[:wanted], data[wanted:]
                wanted = steps.send(taken)
    except StopIteration:
        return "authenticated"
    except (RefusedError, MessageError, EOFError):
        return "refused"


@given(st.binary(max_size=200), st.lists(st.binary(max_size=40), max_size=5), st.booleans())
@example(b"", [b"manager", bytes(NONCE_BYTES), BOMB], True)
@example(b"", [b"manager", bytes(NONCE_BYTES), bytes(NONCE_BYTES), b'{"protocol":3}'], True)
@example(frame(BOMB), [], False)
def test_who_does_not_know_the_secret_is_refused(
    noise: bytes, frames: list[bytes], is_listener: bool
) -> None:
    """Whatever is sent, in frames or not, to a listener or to a client."""
    role = "" if is_listener else "manager"
    data = b"".join(map(frame, frames)) + noise
    assert outcome(greeting({"manager": b"secret"}, {}, role), data) == "refused"


@given(st.binary(max_size=100) | PLAIN.map(lambda value: json.dumps(value).encode()))
@example(b'{"protocol": 3}')
@example(b'{"protocol": 2}')
@example(b"[" * 60_000)
def test_a_greeting_needs_the_same_version(hello: bytes) -> None:
    """Also if TLS has authenticated the client."""
    data = frame(b"manager") + frame(hello)
    is_right = hello == b'{"protocol": 3}'
    expected = "authenticated" if is_right else "refused"
    assert outcome(greeting({"manager": None}, {}), data) == expected


def test_versions_are_told_apart_in_words() -> None:
    """An agent of an earlier version greets in the same way, and is told what to do."""
    steps = greeting({"manager": None}, {}, "manager")
    assert [next(steps), json.loads(next(steps)[4:])] == [  # type: ignore[index]
        frame(b"manager"),
        {"protocol": 3},
    ]
    assert next(steps) == LENGTH.size
    assert steps.send(LENGTH.pack(15)) == 15
    with pytest.raises(RefusedError) as raised:
        steps.send(b'{"protocol": 1}')
    assert str(raised.value) == (
        "the other side has version 1 of the protocol and this one 3;"
        " install the same version of slotwise on all hosts"
    )
