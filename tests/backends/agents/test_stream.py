"""Streams of messages, several of them in one thread."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest

from certificates import contexts
from slotwise.jobs.hosts.messages import Message, MessageStream, tune
from slotwise.jobs.hosts.sockets import repeated

Pair = tuple[MessageStream, MessageStream]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What is to be closed."""
    with ExitStack() as stack:
        yield stack


def connected(stack: ExitStack) -> Pair:
    """Both ends of a connection with TLS."""
    listens, connects = contexts("team")
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    tune(near)
    tune(far)
    with ThreadPoolExecutor(1) as thread:
        accepted = thread.submit(listens.wrap_socket, far, server_side=True)
        ends: list[ssl.SSLSocket] = [connects.wrap_socket(near), accepted.result()]
    streams = [MessageStream(end) for end in ends]
    for stream in streams:
        stack.callback(stream.close)
    return streams[0], streams[1]


def received(stream: MessageStream) -> list[Message]:
    """The next messages. EOFError if the peer is gone."""
    until = time.monotonic() + 10
    while not (messages := stream.receive()):
        assert time.monotonic() < until, "nothing has come"
        time.sleep(0.001)
    return messages


def test_a_peer_that_closes_does_not_end_the_streams_of_others(stack: ExitStack) -> None:
    """With OpenSSL 3.4 or later, Python raised the error of one connection for the other."""
    near, far = connected(stack)
    other_near, other_far = connected(stack)
    near.send(["question"])
    near.flush()
    assert received(far) == [["question"]]
    near.receive()  # What TLS sends by itself: a socket with unread bytes is reset at once.
    time.sleep(0.01)
    near.receive()
    near.close()
    time.sleep(0.01)
    far.send(["answer"])
    far.flush()
    time.sleep(0.01)
    # OpenSSL before 3.4 leaves no error: there, `test_only_errors_that_stay_are_raised` checks.
    for _ in range(2):
        with suppress(EOFError):
            far.receive()
        assert other_far.receive() == []
        other_far.send(["more"])
        other_far.flush()
        assert received(other_near) == [["more"]]


@pytest.mark.parametrize("last", [b"data", ConnectionResetError(), ssl.SSLWantReadError()])
def test_only_errors_that_stay_are_raised(last: bytes | OSError) -> None:
    """The first one may be of another connection; the second call tells of this one."""
    outcomes: list[bytes | OSError] = [BrokenPipeError(), last]

    def receive(size: int) -> bytes:
        outcome = outcomes.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome[:size]

    if isinstance(last, OSError):
        with pytest.raises(type(last)):
            repeated(receive, 2)
    else:
        assert repeated(receive, 2) == b"da"
    assert outcomes == []


@pytest.mark.parametrize(
    "error", [BlockingIOError(), ssl.SSLWantReadError(), ssl.SSLEOFError()]
)
def test_what_tells_of_this_connection_is_raised_at_once(error: OSError) -> None:
    """A call that would block is not repeated, nor is one after an error of TLS itself."""
    calls = []

    def receive() -> bytes:
        calls.append(1)
        raise error

    with pytest.raises(type(error)):
        repeated(receive)
    assert calls == [1]
