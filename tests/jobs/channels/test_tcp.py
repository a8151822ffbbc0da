"""TCP channels with and without TLS: who may connect, what others can do, time-outs."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count
from types import FrameType
from typing import Any

import pytest

from certificates import contexts
from jobs.channels.ends import SECRET, Child
from slotwise.jobs.channels import tcp
from slotwise.jobs.channels.carriers import BrokenChannelError, Packed
from slotwise.jobs.channels.streams import Reader, Writer
from slotwise.jobs.channels.tcp import Listener, connect
from slotwise.jobs.channels.wire import Wire
from slotwise.jobs.hosts.messages import frame
from tiers import examples
from waiting import until

Ends = tuple[ssl.SSLContext, ssl.SSLContext] | tuple[None, None]


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest) -> Ends:
    """What a listener and its writers have for TLS."""
    return contexts("ours") if request.param == "tls" else (None, None)


def write(
    address: str,
    name: str,
    tls: ssl.SSLContext | None = None,
    secret: bytes = SECRET,
    timeout: float = 30.0,
) -> None:
    """Write the name of a channel to it."""
    with connect(address, secret, name, timeout, tls) as writer:
        writer.write(name)


def serve(listener: Listener, name: str, is_over: Callable[[], object]) -> None:
    """Let a listener serve its peers until it is over; no writer of this name is among them."""

    def is_over_now() -> bool:
        with pytest.raises(BrokenChannelError, match="no writer has connected"):
            listener.accept([name], 0.05)
        return bool(is_over())

    until(is_over_now)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_channels_are_told_apart_by_name(host: str, tls: Ends) -> None:
    """Each reader gets what the writer of its name writes, at hosts of IPv4 and IPv6."""
    with Listener(host, SECRET, tls[0]) as listener:
        children = [Child(lambda n=name: write(listener.address, n, tls[1])) for name in "abc"]
        early = listener.accept("b", 30)
        found = early | listener.accept(["c", "a"], 30)
        assert {name: list(reader) for name, reader in found.items()} == {
            name: [name] for name in "abc"
        }
        assert [child.outcome() for child in children] == 3 * [("done", None)]


def test_a_peer_with_a_wrong_secret_is_dropped(tls: Ends) -> None:
    """It is told nothing, and the listener goes on."""
    with Listener("127.0.0.1", SECRET, tls[0]) as listener:
        wrong = Child(lambda: write(listener.address, "it", tls[1], b"a guess"))
        # Only the right one gets its name through, before or after the wrong one.
        right = Child(lambda: write(listener.address, "it", tls[1]))
        assert list(listener.accept(["it"], 30)["it"]) == ["it"]
        serve(listener, "it", wrong.has_ended)
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
            peer.sendall(frame(bytes(32)) + frame(bytes(32)))
            received = b""
            while came := peer.recv(1000):
                received += came
        role, nonce, proof = frames(received)
        assert (role, len(nonce), len(proof)) == (b"writer", 32, 32)
        assert "does not know the token" in child.outcome()[1]


def frames(data: bytes) -> Iterator[bytes]:
    """The data of frames."""
    while data:
        end = 4 + int.from_bytes(data[:4])
        yield data[4:end]
        data = data[end:]


def test_another_server_is_no_listener() -> None:
    """What does not speak the protocol is named."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        child = Child(lambda: write(address, "it"))
        peer, _ = server.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(100))
            assert "it is not a listener for channels" in child.outcome()[1]


@pytest.mark.parametrize("sent", [b"", b"x", bytes(64), bytes(10_000), b"\x80\x05."])
def test_peers_that_send_nothing_or_garbage_do_not_block_others(sent: bytes, tls: Ends) -> None:
    """More of them than the listener keeps; the right one gets through."""
    with Listener("127.0.0.1", SECRET, tls[0]) as listener, ExitStack() as peers:
        host, port = listener.address.split(":")
        for _ in range(40):
            peer = peers.enter_context(socket.create_connection((host, int(port))))
            if sent:
                peer.sendall(sent)
        child = Child(lambda: write(listener.address, "it", tls[1]))
        assert list(listener.accept(["it"], 30)["it"]) == ["it"]
        assert child.outcome() == ("done", None)


def test_few_unknown_peers_are_kept(monkeypatch: pytest.MonkeyPatch, tls: Ends) -> None:
    """The oldest are dropped, so that their descriptors are not used up."""
    monkeypatch.setattr(tcp, "MAX_UNKNOWN", 3)
    with Listener("127.0.0.1", SECRET, tls[0]) as listener, ExitStack() as peers:
        host, port = listener.address.split(":")
        for _ in range(10):
            peers.enter_context(socket.create_connection((host, int(port))))
        with pytest.raises(BrokenChannelError, match="no writer has connected"):
            listener.accept(["it"], 0.3)
        assert len(listener._greetings) <= 3


def test_unknown_peers_are_dropped_after_a_time(
    monkeypatch: pytest.MonkeyPatch, tls: Ends
) -> None:
    """A peer that does not answer reads the end of its connection."""
    monkeypatch.setattr(tcp, "GREETING_SECONDS", 0.01)
    with Listener("127.0.0.1", SECRET, tls[0]) as listener:
        host, port = listener.address.split(":")
        with socket.create_connection((host, int(port))) as peer:
            peer.settimeout(0.01)

            def is_dropped() -> bool:
                with suppress(TimeoutError):
                    while peer.recv(100):
                        pass
                    return True
                return False

            serve(listener, "it", is_dropped)


def test_time_outs_name_what_is_missing(tls: Ends) -> None:
    """The listener names the channels; the writer names the address."""
    with Listener("127.0.0.1", SECRET, tls[0]) as listener:
        child = Child(lambda: [write(listener.address, name, tls[1]) for name in ("b", "last")])
        listener.accept(["last"], 30)["last"].close()
        with pytest.raises(BrokenChannelError) as raised:
            listener.accept(["a", "b", "c"], 0.3)
        assert child.outcome() is not None
        assert raised.value.reason.startswith("no writer has connected to 127.0.0.1:")
        assert raised.value.reason.endswith(" for a, c")
    with socket.create_server(("127.0.0.1", 0)) as server:  # It accepts nobody.
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(BrokenChannelError, match=r"authenticate itself within 0\.1 s"):
            connect(address, SECRET, "it", 0.1, tls[1])
    with pytest.raises(BrokenChannelError, match=f"{address} cannot be reached: "):
        connect(address, SECRET, "it", 1, tls[1])


def test_a_writer_may_come_again(tls: Ends) -> None:
    """Of two authenticated connections of one name, the later is accepted."""
    with Listener("127.0.0.1", SECRET, tls[0]) as listener:
        accepted: dict[str, list[object]] = {}

        def serve() -> None:
            readers = listener.accept(["last"], 30) | listener.accept(["it"], 30)
            accepted.update((name, list(reader)) for name, reader in readers.items())

        thread = threading.Thread(target=serve)
        thread.start()
        first = connect(listener.address, SECRET, "it", 30, tls[1])
        with connect(listener.address, SECRET, "it", 30, tls[1]) as second:
            second.write(2)
        write(listener.address, "last", tls[1])
        thread.join()
        assert accepted == {"last": ["last"], "it": [2]}
        first.fail("another one came")


def test_a_writer_that_was_cut_off_tries_again(
    monkeypatch: pytest.MonkeyPatch, tls: Ends
) -> None:
    """The listener drops it as the oldest of too many peers, or because it was too slow."""
    drops, take = [True, True], Listener._take

    def take_or_drop(self: Listener) -> None:
        if drops:
            drops.pop()
            self._socket.accept()[0].close()
        else:
            take(self)

    monkeypatch.setattr(Listener, "_take", take_or_drop)
    with Listener("127.0.0.1", SECRET, tls[0]) as listener:
        child = Child(lambda: write(listener.address, "it", tls[1]))
        assert list(listener.accept(["it"], 30)["it"]) == ["it"]
        assert child.outcome() == ("done", None)
    assert drops == []


def bytes_received(peer: Any) -> int:
    """How many bytes the kernel has received, by its `tcp_info`."""
    return int(struct.unpack_from("Q", peer.getsockopt(6, socket.TCP_INFO, 136), 128)[0])


def test_a_listener_that_was_stopped_takes_what_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time of its peers is over when it looks, but they have answered."""
    monkeypatch.setattr(tcp, "GREETING_SECONDS", 0.0)
    with Listener("127.0.0.1", SECRET) as listener:
        child = Child(lambda: write(listener.address, "it"))
        while not (listener._greetings or listener._early):  # It may answer at once.
            listener._serve(0.0, 30.0)
        for greeting in listener._greetings:
            while bytes_received(greeting.socket) < 10 + 36 + 36:  # The role and the proof.
                os.sched_yield()
        assert list(listener.accept(["it"], 30)["it"]) == ["it"]
        assert child.outcome() == ("done", None)


def test_hundreds_of_idle_peers_keep_no_writer_away(tls: Ends) -> None:
    """More than the listener keeps connect before and after the writers."""
    with Listener("127.0.0.1", SECRET, tls[0]) as listener, ExitStack() as peers:
        host, port = listener.address.split(":")

        def idle() -> None:
            peers.enter_context(socket.create_connection((host, int(port))))

        for _ in range(200):
            idle()
        names = [str(number) for number in range(5)]
        children = [
            Child(lambda name=name: write(listener.address, name, tls[1])) for name in names
        ]
        for _ in range(100):
            idle()
        found = listener.accept(names, 30)
        assert {name: list(reader) for name, reader in found.items()} == {
            name: [name] for name in names
        }
        assert [child.outcome() for child in children] == 5 * [("done", None)]


def refused(way: str) -> ssl.SSLContext | None:
    """What somebody has who knows the secret, and lacks a certificate of the authority."""
    if way == "without TLS":
        return None
    if way == "another authority":
        return contexts("others")[1]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.mark.parametrize("way", ["without TLS", "no certificate", "another authority"])
def test_a_listener_with_tls_demands_a_certificate(way: str) -> None:
    """The secret alone is not enough. The listener goes on."""
    theirs, ours = contexts("ours")
    with Listener("127.0.0.1", SECRET, theirs) as listener:
        wrong = Child(lambda: write(listener.address, "wrong", refused(way), timeout=1.0))
        right = Child(lambda: write(listener.address, "right", ours))
        assert list(listener.accept(["right"], 30)["right"]) == ["right"]
        serve(listener, "wrong", wrong.has_ended)
        assert not any(greeting.is_known for greeting in listener._greetings)
    assert wrong.outcome()[0] == "BrokenChannelError"
    assert right.outcome() == ("done", None)


def test_a_writer_without_tls_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The listener does not wait for its certificate; the right one comes after it."""
    monkeypatch.setattr(tcp, "GREETING_SECONDS", 1000.0)
    theirs, ours = contexts("ours")
    with Listener("127.0.0.1", SECRET, theirs) as listener:

        def both() -> None:
            with pytest.raises(BrokenChannelError, match="only one side has TLS"):
                write(listener.address, "wrong", timeout=1000.0)
            write(listener.address, "right", ours)

        child = Child(both)
        assert list(listener.accept(["right"], 20)["right"]) == ["right"]
        assert child.outcome() == ("done", None)


@pytest.mark.parametrize("way", ["plain", "another authority"])
def test_a_writer_with_tls_demands_a_certificate(way: str) -> None:
    """Also a listener that knows the secret gets not even the proof of it."""
    theirs = contexts("others")[0] if way != "plain" else None
    with Listener("127.0.0.1", SECRET, theirs) as listener:
        child = Child(lambda: write(listener.address, "it", contexts("ours")[1]))
        serve(listener, "it", child.has_ended)
        name, text = child.outcome()
    assert name == "BrokenChannelError"
    told = "WRONG_VERSION_NUMBER" if way == "plain" else "CERTIFICATE_VERIFY_FAILED"
    assert told in text


def test_a_peer_that_is_silent_after_the_handshake_does_not_block_others() -> None:
    """It has a certificate, and waits like any other unknown peer."""
    theirs, ours = contexts("ours")
    with Listener("127.0.0.1", SECRET, theirs) as listener, ExitStack() as peers:
        host, port = listener.address.split(":")

        def silent() -> None:
            peer = socket.create_connection((host, int(port)))
            peers.enter_context(ours.wrap_socket(peer))

        thread = threading.Thread(target=silent)
        thread.start()
        child = Child(lambda: write(listener.address, "it", ours))
        assert list(listener.accept(["it"], 30)["it"]) == ["it"]
        assert child.outcome() == ("done", None)
        serve(listener, "other", lambda: not thread.is_alive())
        assert len(listener._greetings) == 1


END_RECORD = bytes.fromhex("170303001a")
"""How the record of TLS 1.3 begins that has the 9 bytes of the message END, and no other."""


class Relay(threading.Thread):
    """Passes on the records of one writer with TLS, but not that with the end of its stream."""

    def __init__(self, address: str) -> None:
        super().__init__()
        host, port = address.split(":")
        self._server = socket.create_server(("127.0.0.1", 0))
        self._there = socket.create_connection((host, int(port)))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.passed = b""
        self.has_cut = False
        self.start()

    def run(self) -> None:
        """Pass on until the writer has ended; then end the stream as TCP does."""
        here, _ = self._server.accept()
        back = threading.Thread(target=self._pass_back, args=(here,))
        back.start()
        with here, here.makefile("rb") as records:
            while head := records.read(5):
                record = head + records.read(int.from_bytes(head[3:]))
                self.has_cut = head == END_RECORD
                if not self.has_cut:
                    self.passed += record
                    self._there.sendall(record)
            self._there.shutdown(socket.SHUT_WR)
            back.join()
        self._there.close()
        self._server.close()

    def _pass_back(self, here: socket.socket) -> None:
        with suppress(OSError):
            while data := self._there.recv(1 << 16):
                here.sendall(data)


def test_a_stream_without_its_end_is_broken() -> None:
    """All records have come; who cuts the connection there cannot pass for the writer."""
    theirs, ours = contexts("ours")
    with Listener("127.0.0.1", SECRET, theirs) as listener:
        relay = Relay(listener.address)

        def body() -> None:
            with connect(relay.address, SECRET, "it", 30, ours) as writer:
                writer.write_all([b"in clear" * 40_000, "last"])

        child = Child(body)
        reader = listener.accept(["it"], 30)["it"]
        got: list[object] = []
        with pytest.raises(BrokenChannelError, match="ended without closing"):
            got += reader
        reader.close()
        assert child.outcome() == ("done", None)
    relay.join()
    assert relay.has_cut
    assert got == [b"in clear" * 40_000, "last"]
    assert len(relay.passed) > 320_000
    assert b"in clear" not in relay.passed


class CutShort:
    """A socket that sends some bytes of the next message, and then raises an error."""

    def __init__(self, whole: socket.socket, most: int) -> None:
        self._whole, self._most = whole, most

    def __getattr__(self, name: str) -> object:
        return getattr(self._whole, name)

    def sendmsg(self, views: list[memoryview], controls: list[object], flags: int) -> int:
        """Send some of the first bytes."""
        self._whole.sendall(b"".join(views)[: self._most])
        raise RuntimeError("enough")


def test_no_record_of_a_frame_that_was_not_sent_whole_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wherever the writer is interrupted, the reader gets what came before, and the reason."""
    frame = sum(map(len, packed([b"\0" * 8, "second"])))
    monkeypatch.setattr(tcp, "PIECE_BYTES", frame)
    for sent in range(tcp.MESSAGE.size + frame):
        with Listener("127.0.0.1", SECRET) as listener:
            writers: list[Any] = []
            connecting = threading.Thread(
                target=lambda to=listener.address, into=writers: into.append(
                    connect(to, SECRET, "it", 30)
                )
            )
            connecting.start()
            (reader,) = listener.accept(["it"], 30).values()
            connecting.join()
            (writer,) = writers
            writer.write("first")
            writer.flush()
            line = writer._sink._line
            line.socket = CutShort(line.socket, sent)
            failing = threading.Thread(target=lambda one=writer: fail_within(one))
            failing.start()
            records = iter(reader)
            assert next(records) == "first"
            with pytest.raises(BrokenChannelError, match="enough"):
                next(records)
            reader.close()
            failing.join()


def packed(records: list[object]) -> list[memoryview]:
    """The bytes of a frame of these records."""
    waiting = Packed()
    waiting.add(records)
    return waiting.take()


def fail_within(writer: Writer) -> None:
    """Fail the channel while a frame is sent."""
    try:
        writer.write_all([b"\0" * 8, "second"])
        writer.flush()
    except RuntimeError as error:
        writer.fail(str(error))


def interrupted_write(number: int) -> tuple[bool, str]:
    """Write records, and raise before the instruction with this number. The reader's failure.

    Whether an exception was raised comes first: a number may be too large.
    """
    ours, theirs = socket.socketpair()
    writer = Writer(tcp._SocketSink(Wire(ours)), batch_bytes=1)
    left = number

    def step(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if not left:
            sys.settrace(before)
            left = -1
            raise RuntimeError("stop now")
        return step

    def enter(frame: FrameType, event: str, argument: object) -> Any:
        is_ours = "slotwise" in frame.f_code.co_filename and frame.f_code.co_name != "__exit__"
        frame.f_trace_opcodes = is_ours
        return step if is_ours else None

    before = sys.gettrace()
    with suppress(RuntimeError), writer:
        sys.settrace(enter)
        try:
            for _ in range(3):
                writer.write(bytes(700))
        finally:
            sys.settrace(before)
    with Reader(tcp._SocketSource(Wire(theirs))) as reader:
        try:
            list(reader)
        except BrokenChannelError as error:
            return True, error.reason
    return False, ""


def test_an_exception_at_any_instruction_of_a_write_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also between the last bytes of a piece and the note that it was sent."""
    monkeypatch.setattr(tcp, "PIECE_BYTES", 300)  # Three pieces for each record.
    step = examples(13, slow=1)
    for number in count(1, step):
        was_raised, reason = interrupted_write(number)
        if not was_raised:
            assert number > 500, "the whole of a write was tried"
            return
        assert reason == "RuntimeError: stop now", f"after {number} instructions"
