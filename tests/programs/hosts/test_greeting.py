"""Greetings that are late or no greetings."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from slotwise.programs.hosts import greeting
from slotwise.programs.hosts.greeting import RefusedError, greet_peer, write_frame

TOKEN = os.urandom(16)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """An agent and a peer."""
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_a_greeting_has_one_deadline(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that sends a byte from time to time is refused as one that sends nothing."""
    monkeypatch.setattr(greeting, "GREETING_SECONDS", 0.3)
    agent, peer = pair
    is_over = threading.Event()

    def drip() -> None:
        with suppress(OSError):
            peer.sendall(greeting.LENGTH.pack(greeting.HELLO_MOST))
            while not is_over.wait(0.05):
                peer.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        with pytest.raises(RefusedError, match="timed out"):
            greet_peer(agent, TOKEN, {})
    finally:
        is_over.set()
        thread.join()


def test_json_that_is_nested_deeply_is_no_greeting(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """Of a peer that knows the token."""
    agent, peer = pair
    refused: list[str] = []

    def serve() -> None:
        with pytest.raises(RefusedError) as raised:
            greet_peer(agent, TOKEN, {})
        refused.append(str(raised.value))

    thread = threading.Thread(target=serve)
    thread.start()
    write_frame(peer, b"manager")
    ends = greeting.monotonic() + 30
    greeting._prove(peer, TOKEN, is_agent=False, ends=ends)
    write_frame(peer, b"[" * 60_000)
    thread.join()
    # Python 3.14 reads as far as the end of the text.
    why = "the JSON is nested too deeply"
    if sys.version_info >= (3, 14):
        why = "Expecting value: line 1 column 60001 (char 60000)"
    assert refused == [f"no valid greeting: {why}"]
