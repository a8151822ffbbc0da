"""Greetings that are late or no greetings."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from slotwise.jobs.hosts import auth, messages
from slotwise.jobs.hosts.auth import RefusedError, greet_peer
from slotwise.jobs.hosts.messages import frame, run, take_frame
from slotwise.jobs.hosts.sockets import MAX_REFUSALS, REFUSAL_SECONDS, RefusalLog

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
    monkeypatch.setattr(auth, "GREETING_SECONDS", 0.3)
    agent, peer = pair
    is_over = threading.Event()

    def drip() -> None:
        with suppress(OSError):
            peer.sendall(messages.LENGTH.pack(auth.MAX_PROOF))
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
    peer.sendall(frame(b"manager"))
    peer.sendall(frame(bytes(32)))
    run(peer, auth._proof(TOKEN, bytes(32), is_client=True), auth.monotonic() + 30)
    peer.sendall(frame(b"[" * 60_000))
    thread.join()
    # Python 3.14 reads as far as the end of the text.
    why = "the JSON is nested too deeply"
    if sys.version_info >= (3, 14):
        why = "Expecting value: line 1 column 60001 (char 60000)"
    assert refused == [f"invalid greeting: {why}"]


def test_an_agent_proves_nothing_to_a_peer_that_does_not_know_the_token(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """All that such a peer receives is a random number."""
    agent, peer = pair
    peer.sendall(frame(b"manager"))
    peer.sendall(frame(bytes(32)))
    peer.sendall(frame(bytes(32)))  # A wrong proof.
    with pytest.raises(RefusedError, match="does not know the token"):
        greet_peer(agent, TOKEN, {})
    agent.shutdown(socket.SHUT_WR)
    assert len(run(peer, take_frame(auth.MAX_PROOF))) == 32
    assert peer.recv(1) == b""


def test_refused_connections_are_logged_at_a_bounded_rate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Those that were only counted are in the first line after that."""
    now = 0.0
    log = RefusalLog("agent", lambda: now)
    for _ in range(MAX_REFUSALS + 1000):
        log.add("invalid greeting")
    line = "agent: a connection was refused: invalid greeting"
    assert capsys.readouterr().err.splitlines() == [line] * MAX_REFUSALS
    now = REFUSAL_SECONDS
    log.add("invalid greeting")
    log.add("invalid greeting")
    first, second = capsys.readouterr().err.splitlines()
    assert (first, second) == (f"{line} (1000 others before it were not logged)", line)
