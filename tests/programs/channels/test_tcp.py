"""TCP channels: who may connect, what others can do, time-outs, addresses."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import ExitStack

import pytest

from programs.channels.ends import SECRET, Child
from slotwise.programs.channels import handshake, tcp
from slotwise.programs.channels.broken import BrokenChannelError
from slotwise.programs.channels.tcp import Listener, connect


def write(address: str, name: str, secret: bytes = SECRET) -> None:
    """Write the name of a channel to it."""
    with connect(address, secret, name, 30) as writer:
        writer.write(name)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_channels_are_told_apart_by_name(host: str) -> None:
    """Each reader gets what the writer of its name writes, at hosts of IPv4 and IPv6."""
    with Listener(host, SECRET) as listener:
        children = [Child(lambda n=name: write(listener.address, n)) for name in "abc"]
        early = listener.accept("b", 30)
        found = early | listener.accept(["c", "a"], 30)
        assert {name: list(reader) for name, reader in found.items()} == {
            name: [name] for name in "abc"
        }
        assert [child.outcome() for child in children] == 3 * [("done", None)]


def test_a_peer_with_a_wrong_secret_is_dropped() -> None:
    """It is told nothing, and the listener goes on."""
    with Listener("127.0.0.1", SECRET) as listener:
        wrong = Child(lambda: write(listener.address, "it", b"a guess"))
        # Only the right one gets its name through, before or after the wrong one.
        right = Child(lambda: write(listener.address, "it"))
        assert list(listener.accept(["it"], 30)["it"]) == ["it"]
        with pytest.raises(BrokenChannelError, match="no writer has come"):
            listener.accept(["other"], 0.3)
        name, text = wrong.outcome()
        assert (name, "does not know the same secret" in text) == ("BrokenChannelError", True)
        assert right.outcome() == ("done", None)


def test_a_listener_with_a_wrong_secret_learns_nothing() -> None:
    """The writer breaks off before it sends the name of its channel."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        child = Child(lambda: write(address, "the name"))
        peer, _ = server.accept()
        with peer:
            peer.sendall(handshake.PROTOCOL + bytes(32) + bytes(32))
            received = b""
            while came := peer.recv(1000):
                received += came
        assert len(received) == 64
        assert "does not know the secret" in child.outcome()[1]


def test_another_server_is_no_listener() -> None:
    """What does not speak the protocol is named."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        child = Child(lambda: write(address, "it"))
        peer, _ = server.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(100))
            assert "it is no listener for channels" in child.outcome()[1]


@pytest.mark.parametrize("sent", [b"", b"x", bytes(64), bytes(10_000), b"\x80\x05."])
def test_peers_that_send_nothing_or_garbage_do_not_block_others(sent: bytes) -> None:
    """More of them than the listener keeps; the right one gets through."""
    with Listener("127.0.0.1", SECRET) as listener, ExitStack() as peers:
        host, port = listener.address.split(":")
        for _ in range(40):
            peer = peers.enter_context(socket.create_connection((host, int(port))))
            if sent:
                peer.sendall(sent)
        child = Child(lambda: write(listener.address, "it"))
        assert list(listener.accept(["it"], 30)["it"]) == ["it"]
        assert child.outcome() == ("done", None)


def test_few_unknown_peers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are dropped, so that their descriptors are not used up."""
    monkeypatch.setattr(tcp, "UNKNOWN_MOST", 3)
    with Listener("127.0.0.1", SECRET) as listener, ExitStack() as peers:
        host, port = listener.address.split(":")
        for _ in range(10):
            peers.enter_context(socket.create_connection((host, int(port))))
        with pytest.raises(BrokenChannelError, match="no writer has come"):
            listener.accept(["it"], 0.3)
        assert len(listener._greetings) <= 3


def test_unknown_peers_are_dropped_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that does not answer reads the end of its connection."""
    monkeypatch.setattr(handshake, "GREETING_SECONDS", 0.01)
    with Listener("127.0.0.1", SECRET) as listener:
        host, port = listener.address.split(":")
        with socket.create_connection((host, int(port))) as peer:
            with pytest.raises(BrokenChannelError, match="no writer has come"):
                listener.accept(["it"], 0.3)
            peer.settimeout(30)
            while peer.recv(100):
                pass


def test_time_outs_name_what_is_missing() -> None:
    """The listener names the channels; the writer names the address."""
    with Listener("127.0.0.1", SECRET) as listener:
        child = Child(lambda: write(listener.address, "b"))
        with pytest.raises(BrokenChannelError) as raised:
            listener.accept(["a", "b", "c"], 0.3)
        assert child.outcome() is not None
        assert raised.value.reason.startswith("after 0.3 s no writer has come to 127.0.0.1:")
        assert raised.value.reason.endswith(" for a, c")
    with socket.create_server(("127.0.0.1", 0)) as server:  # It accepts nobody.
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(BrokenChannelError, match=r"authenticate itself within 0\.1 s"):
            connect(address, SECRET, "it", 0.1)
    with pytest.raises(BrokenChannelError, match=f"{address} cannot be reached: "):
        connect(address, SECRET, "it", 1)


def test_a_writer_may_come_again() -> None:
    """Of two authenticated connections of one name, the later is accepted."""
    with Listener("127.0.0.1", SECRET) as listener:
        accepted: dict[str, list[object]] = {}

        def serve() -> None:
            readers = listener.accept(["last"], 30) | listener.accept(["it"], 30)
            accepted.update((name, list(reader)) for name, reader in readers.items())

        thread = threading.Thread(target=serve)
        thread.start()
        first = connect(listener.address, SECRET, "it", 30)
        with connect(listener.address, SECRET, "it", 30) as second:
            second.write(2)
        write(listener.address, "last")
        thread.join()
        assert accepted == {"last": ["last"], "it": [2]}
        first.fail("another one came")


def test_a_writer_that_was_cut_off_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The listener drops it as the oldest of too many peers, or because it was too slow."""
    drops, take = [True, True], Listener._take

    def take_or_drop(self: Listener) -> None:
        take(self)
        if drops and self._greetings:
            drops.pop()
            self._greetings.drop_oldest()

    monkeypatch.setattr(Listener, "_take", take_or_drop)
    with Listener("127.0.0.1", SECRET) as listener:
        child = Child(lambda: write(listener.address, "it"))
        assert list(listener.accept(["it"], 30)["it"]) == ["it"]
        assert child.outcome() == ("done", None)
    assert drops == []


def test_a_listener_that_was_stopped_takes_what_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time of its peers is over when it looks, but they have answered."""
    monkeypatch.setattr(handshake, "GREETING_SECONDS", 0.0)
    with Listener("127.0.0.1", SECRET) as listener:
        child = Child(lambda: write(listener.address, "it"))
        while not listener._greetings:
            listener._serve(0.0, 1e6)
        (greeting,) = listener._greetings
        select.select([greeting.socket], [], [], 30)
        assert list(listener.accept(["it"], 30)["it"]) == ["it"]
        assert child.outcome() == ("done", None)


def test_hundreds_of_idle_peers_keep_no_writer_away() -> None:
    """More than the listener keeps connect before and after the writers."""
    with Listener("127.0.0.1", SECRET) as listener, ExitStack() as peers:
        host, port = listener.address.split(":")

        def idle() -> None:
            peers.enter_context(socket.create_connection((host, int(port))))

        for _ in range(200):
            idle()
        names = [str(number) for number in range(5)]
        children = [Child(lambda name=name: write(listener.address, name)) for name in names]
        for _ in range(100):
            idle()
        found = listener.accept(names, 30)
        assert {name: list(reader) for name, reader in found.items()} == {
            name: [name] for name in names
        }
        assert [child.outcome() for child in children] == 5 * [("done", None)]
