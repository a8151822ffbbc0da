"""Channels beside the bare media and other libraries: `python benchmarks/channels.py`.

A forked process writes, this one reads; the time is that of the reader, from the start of the
writer to the last byte or record. Everything is measured in turns in this run, and the shortest
time of each counts. A ratio is the time of a row divided by that of a bare medium above it.

arrow    Arrow batches of 2 MB. The bare medium moves as many bytes, always between the same two
         buffers, and makes no batch of them.
records  Pairs of a word and a number. The bare medium "with pickling" pickles lists of 1,000
         and unpickles them. "bytes only" moves such a pickle that was made before, and
         unpickles nothing: the ratio to it is mostly the cost of pickling.

Files are written and then read by one process, without waiting for the disk.

An argument is the number of rounds: `python benchmarks/channels.py 20`.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import pickle
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Client, Connection, Pipe
from multiprocessing.connection import Listener as PipeListener
from ssl import SSLContext
from typing import Any

import numpy as np
import pyarrow as pa

from certificates import contexts
from check import MEDIA, Result, serve
from measuring import in_turn, ratio
from slotwise.jobs.channels.files import FileReader, FileWriter, Spilling
from slotwise.jobs.channels.ring import CAPACITY, SharedRing
from slotwise.jobs.channels.streams import Reader, Writer
from slotwise.jobs.channels.tcp import Listener, _SocketSink, _SocketSource, connect
from slotwise.jobs.channels.wire import Wire

ROUNDS = 5
BATCH = pa.record_batch({"a": np.arange(1 << 17), "b": np.linspace(0, 1, 1 << 17)})
BATCHES = 200
PAIRS = [(f"word{number % 5000}", number) for number in range(1000)]
LISTS = 500
SIZE = BATCH.nbytes
KEY = b"a secret of the run"

Transfer = tuple[Callable[[], None], Callable[[], None]]
"""What the writing process does, and what the reading one does."""


def main() -> None:
    table(
        f"arrow over TCP, {BATCHES} batches",
        {
            "bare socket": lambda: bare_socket(tcp_pair()),
            "bare TLS": lambda: bare_socket(tls_pair()),
            "slotwise": lambda: ours(tcp_channel(), write_batches),
            "slotwise, TLS": lambda: ours(tls_channel(), write_batches),
            "slotwise, spilling": lambda: ours(spilling(tcp_channel()), write_batches),
            "Arrow IPC on a socket": ipc_on_socket,
            "Arrow Flight": flight,
            "multiprocessing.connection": lambda: connection_bytes(tcp_connection),
        },
    )
    table(
        "arrow through shared memory",
        {
            "bare pipe": bare_pipe,
            "bare memory copies": bare_copies,
            "slotwise": lambda: ours(ring_channel(), write_batches),
            "slotwise, ring of 1 MB": lambda: ours(ring_channel(1 << 20), write_batches),
            "slotwise, spilling": lambda: ours(spilling(ring_channel()), write_batches),
            "our frames on a socket pair": lambda: ours(on_sockets(), write_batches),
            "multiprocessing.Pipe": lambda: connection_bytes(lambda: Pipe()),
        },
    )
    table(
        f"records over TCP, {LISTS * len(PAIRS):,} pairs",
        records_on(tcp_pair, tcp_channel, tcp_connection)
        | {"slotwise, TLS": lambda: ours(tls_channel(), write_pairs)},
    )
    table(
        "records through shared memory",
        records_on(socket.socketpair, ring_channel, lambda: Pipe()),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/file"
        alone(
            "arrow in a file",
            {
                "bare write and read": lambda: file_bare(path),
                "slotwise": lambda: file_ours(path, write_batches),
                "Arrow IPC file": lambda: file_ipc(path),
            },
        )
        alone(
            "records in a file",
            {
                "bare, bytes only": lambda: file_bytes(path),
                "bare, with pickling": lambda: file_pickles(path),
                "slotwise": lambda: file_ours(path, write_pairs),
            },
        )


def check() -> Iterator[Result]:
    """Arrow batches at most 1.5 times the bare medium, records 2 times, pickling included."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/file"
        ways: list[tuple[str, float, Callable[[], float], Callable[[], float], str]] = [
            (
                "Arrow over TCP",
                1.5,
                lambda: transferred(*ours(tcp_channel(), write_batches)),
                lambda: transferred(*bare_socket(tcp_pair())),
                "",
            ),
            (
                "Arrow in shared memory, by memory copies",
                1.5,
                lambda: transferred(*ours(ring_channel(), write_batches)),
                lambda: transferred(*bare_copies()),
                "1.29 on a quiet machine (docs/decisions/0027-channels.md); 1.65 to 1.97 with"
                " other work on both processors, with the code before this release, too",
            ),
            (
                "Arrow in files",
                1.5,
                lambda: timed(lambda: file_ours(path, write_batches)),
                lambda: timed(lambda: file_bare(path)),
                "files of Arrow itself take 1.85 (docs/decisions/0027-channels.md)",
            ),
            (
                "records over TCP",
                2.0,
                lambda: transferred(*ours(tcp_channel(), write_pairs)),
                lambda: transferred(*pickles(tcp_pair())),
                ALONE,
            ),
            (
                "records in shared memory",
                2.0,
                lambda: transferred(*ours(ring_channel(), write_pairs)),
                lambda: transferred(*pickles(socket.socketpair())),
                ALONE,
            ),
            (
                "records in files",
                2.0,
                lambda: timed(lambda: file_ours(path, write_pairs)),
                lambda: timed(lambda: file_pickles(path)),
                "",
            ),
        ]
        for name, goal, mine, bare, cause in ways:
            value = ratio(in_turn({"ours": mine, "bare": bare}, 5), "ours", "bare")
            unit = "x the time of the bare medium"
            yield Result(name, value, goal, unit, noise=MEDIA, cause=cause)


ALONE = (
    "each record is looked at alone, because it may be the last one for a while, which is most"
    " of the difference: 2.0 to 2.1 on a quiet machine (docs/decisions/0027-channels.md)"
)


def records_on(
    sockets: Callable[[], tuple[socket.socket, socket.socket]],
    channel: Callable[[], tuple[Callable[[], Writer], Callable[[], Reader]]],
    connection: Callable[[], tuple[Connection, Connection]],
) -> dict[str, Callable[[], Transfer]]:
    return {
        "bare, bytes only": lambda: pickles(sockets(), pickles_only=True),
        "bare, with pickling": lambda: pickles(sockets()),
        "slotwise": lambda: ours(channel(), write_pairs),
        "slotwise, write": lambda: ours(channel(), write_pairs_singly),
        "slotwise, spilling": lambda: ours(spilling(channel()), write_pairs),
        "multiprocessing.connection": lambda: connection_lists(connection),
    }


def table(title: str, contenders: dict[str, Callable[[], Transfer]]) -> None:
    show(title, {name: lambda m=make: transferred(*m()) for name, make in contenders.items()})


def alone(title: str, contenders: dict[str, Callable[[], None]]) -> None:
    show(title, {name: lambda run=run: timed(run) for name, run in contenders.items()})


def show(title: str, contenders: dict[str, Callable[[], float]]) -> None:
    best = {name: min(found) for name, found in in_turn(contenders, ROUNDS).items()}
    bare = [name for name in best if name.startswith("bare")]
    print(f"{title:34} {'ms':>7}" + "".join(f"{'/ ' + name:>24}" for name in bare))
    for name, seconds in best.items():
        ratios = "".join(f"{seconds / best[other]:24.2f}" for other in bare)
        print(f"  {name:32} {seconds * 1e3:7.1f}{ratios}")
    print(flush=True)


def timed(run: Callable[[], None]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def transferred(write: Callable[[], None], read: Callable[[], None]) -> float:
    """Seconds until all is read; the process of the writer is forked before."""
    waiting, go = os.pipe()
    pid = os.fork()
    if not pid:
        os.read(waiting, 1)
        try:
            write()
        finally:
            os._exit(0)
    os.write(go, b"x")
    seconds = timed(read)
    os.waitpid(pid, 0)
    os.close(waiting)
    os.close(go)
    return seconds


# slotwise


def ours(
    ends: tuple[Callable[[], Writer], Callable[[], Reader]], body: Callable[[Writer], None]
) -> Transfer:
    open_writer, open_reader = ends

    def write() -> None:
        with open_writer() as writer:
            body(writer)

    def read() -> None:
        count = 0
        for _ in open_reader():
            count += 1
        assert count in (BATCHES, LISTS * len(PAIRS))

    return write, read


def write_batches(writer: Writer) -> None:
    for _ in range(BATCHES):
        writer.write(BATCH)


def write_pairs(writer: Writer) -> None:
    for _ in range(LISTS):
        writer.write_all(PAIRS)


def write_pairs_singly(writer: Writer) -> None:
    for _ in range(LISTS):
        for pair in PAIRS:
            writer.write(pair)


def tls_channel() -> tuple[Callable[[], Writer], Callable[[], Reader]]:
    return tcp_channel(*contexts("ours"))


def tcp_channel(
    theirs: SSLContext | None = None, mine: SSLContext | None = None
) -> tuple[Callable[[], Writer], Callable[[], Reader]]:
    listener = Listener("127.0.0.1", KEY, theirs)
    address = listener.address

    def accept() -> Reader:
        with listener:
            return listener.accept(["it"], 30)["it"]

    return lambda: connect(address, KEY, "it", 30, mine), accept


def ring_channel(size: int = CAPACITY) -> tuple[Callable[[], Writer], Callable[[], Reader]]:
    ring = SharedRing(size)
    return ring.writer, ring.reader


def on_sockets() -> tuple[Callable[[], Writer], Callable[[], Reader]]:
    ours, theirs = socket.socketpair()
    return lambda: Writer(_SocketSink(Wire(ours))), lambda: Reader(_SocketSource(Wire(theirs)))


def spilling(
    ends: tuple[Callable[[], Writer], Callable[[], Reader]],
) -> tuple[Callable[[], Writer], Callable[[], Reader]]:
    return ends[0], lambda: Spilling(ends[1](), 1 << 26, tempfile.gettempdir())


# Bare media


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        writer = socket.create_connection(server.getsockname())
        return writer, server.accept()[0]


def bare_socket(ends: tuple[socket.socket, socket.socket]) -> Transfer:
    source, into = bytearray(os.urandom(SIZE)), bytearray(SIZE)

    def write() -> None:
        for _ in range(BATCHES):
            ends[0].sendall(source)

    def read() -> None:
        left = BATCHES * SIZE
        while left:
            left -= ends[1].recv_into(into, min(left, SIZE))
        for end in ends:
            end.close()

    return write, read


def tls_pair() -> tuple[socket.socket, socket.socket]:
    """The handshake is part of the first bytes."""
    (writing, reading), (theirs, mine) = tcp_pair(), contexts("ours")
    return (
        mine.wrap_socket(writing, do_handshake_on_connect=False),
        theirs.wrap_socket(reading, server_side=True, do_handshake_on_connect=False),
    )


def bare_pipe() -> Transfer:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)
    source, into = memoryview(os.urandom(SIZE)), bytearray(SIZE)

    def write() -> None:
        for _ in range(BATCHES):
            view = source
            while view:
                view = view[os.write(writing, view) :]

    def read() -> None:
        left = BATCHES * SIZE
        while left:
            left -= os.readv(reading, [memoryview(into)[: min(left, SIZE)]])
        os.close(reading)
        os.close(writing)

    return write, read


def bare_copies() -> Transfer:
    """Copies into and out of two halves of shared memory, with a byte on a socket for each."""
    half = 1 << 20
    shared = memoryview(mmap.mmap(-1, 2 * half))
    source, into = memoryview(os.urandom(SIZE)), memoryview(bytearray(SIZE))
    ours, theirs = socket.socketpair()
    count = BATCHES * SIZE // half

    def write() -> None:
        for number in range(count):
            if number >= 2:
                ours.recv(1)
            at = number % 2 * half
            shared[at : at + half] = source[at : at + half]
            ours.send(b"x")

    def read() -> None:
        for number in range(count):
            theirs.recv(1)
            at = number % 2 * half
            into[at : at + half] = shared[at : at + half]
            theirs.send(b"x")
        ours.close()
        theirs.close()

    return write, read


def pickles(
    ends: tuple[socket.socket, socket.socket], *, pickles_only: bool = False
) -> Transfer:
    """Pickled lists with their lengths on a socket."""
    fixed = pickle.dumps(PAIRS, 5)

    def write() -> None:
        for _ in range(LISTS):
            body = fixed if pickles_only else pickle.dumps(PAIRS, 5)
            ends[0].sendall(struct.pack("<Q", len(body)) + body)

    def read() -> None:
        into, count = memoryview(bytearray(1 << 20)), 0
        for _ in range(LISTS):
            ends[1].recv_into(into, 8, socket.MSG_WAITALL)
            (size,) = struct.unpack_from("<Q", into)
            ends[1].recv_into(into, size, socket.MSG_WAITALL)
            if not pickles_only:
                for _ in pickle.loads(into[:size]):
                    count += 1
        for end in ends:
            end.close()

    return write, read


# Other libraries


def ipc_on_socket() -> Transfer:
    writing, reading = tcp_pair()

    def write() -> None:
        with writing.makefile("wb") as file, pa.ipc.new_stream(file, BATCH.schema) as stream:
            for _ in range(BATCHES):
                stream.write_batch(BATCH)

    def read() -> None:
        with reading.makefile("rb") as file, pa.ipc.open_stream(file) as stream:
            for _ in range(BATCHES):
                stream.read_next_batch()
        writing.close()
        reading.close()

    return write, read


def flight() -> Transfer:
    import pyarrow.flight as fl

    reading, writing = os.pipe()

    class Server(fl.FlightServerBase):
        def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            for _ in reader:
                pass

    def write() -> None:
        location = os.read(reading, 100).decode()
        with fl.FlightClient(location) as client:
            stream, _ = client.do_put(fl.FlightDescriptor.for_path("it"), BATCH.schema)
            for _ in range(BATCHES):
                stream.write_batch(BATCH)
            stream.close()

    def read() -> None:
        done = threading.Event()

        class Ending(Server):
            def do_put(self, *arguments: Any) -> None:
                super().do_put(*arguments)
                done.set()

        with Ending("grpc://127.0.0.1:0") as server:
            os.write(writing, f"grpc://127.0.0.1:{server.port}".encode())
            done.wait()
        os.close(reading)
        os.close(writing)

    return write, read


def tcp_connection() -> tuple[Connection, Connection]:
    with PipeListener(("127.0.0.1", 0), authkey=KEY) as listener:
        accepted: list[Connection] = []
        thread = threading.Thread(target=lambda: accepted.append(listener.accept()))
        thread.start()
        writer = Client(listener.address, authkey=KEY)
        thread.join()
    return accepted[0], writer


def connection_bytes(make: Callable[[], tuple[Connection, Connection]]) -> Transfer:
    reader, writer = make()

    def write() -> None:
        for _ in range(BATCHES):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, BATCH.schema) as stream:
                stream.write_batch(BATCH)
            writer.send_bytes(memoryview(sink.getvalue()))

    def read() -> None:
        for _ in range(BATCHES):
            pa.ipc.open_stream(reader.recv_bytes()).read_next_batch()
        reader.close()
        writer.close()

    return write, read


def connection_lists(make: Callable[[], tuple[Connection, Connection]]) -> Transfer:
    reader, writer = make()

    def write() -> None:
        for _ in range(LISTS):
            writer.send(PAIRS)

    def read() -> None:
        count = 0
        for _ in range(LISTS):
            for _ in reader.recv():
                count += 1
        reader.close()
        writer.close()

    return write, read


# Files


def file_bare(path: str) -> None:
    source, into = os.urandom(SIZE), bytearray(SIZE)
    with open(path, "wb") as file:
        for _ in range(BATCHES):
            file.write(source)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(into):
            pass


def file_ours(path: str, body: Callable[[Writer], None]) -> None:
    with FileWriter(path, 1) as file:
        body(file.part(0))
    for _ in FileReader(path, 0):
        pass


def file_ipc(path: str) -> None:
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, BATCH.schema) as stream:
        for _ in range(BATCHES):
            stream.write_batch(BATCH)
    with pa.OSFile(path) as source, pa.ipc.open_stream(source) as stream:
        for _ in stream:
            pass


def file_bytes(path: str) -> None:
    body = pickle.dumps(PAIRS, 5)
    with open(path, "wb") as file:
        for _ in range(LISTS):
            file.write(body)
    into = bytearray(1 << 17)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(into):
            pass


def file_pickles(path: str) -> None:
    with open(path, "wb") as file:
        for _ in range(LISTS):
            pickle.dump(PAIRS, file, 5)
    with open(path, "rb") as file:
        for _ in range(LISTS):
            for _ in pickle.load(file):
                pass


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] != "--check":
        ROUNDS = int(sys.argv[1])
    serve(main, check)
