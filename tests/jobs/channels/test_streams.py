"""What holds for channels of all kinds: order, the end, failures, closing early, deaths."""

from __future__ import annotations

import mmap
import os
import random
import signal
import tempfile
import threading
from collections.abc import Sequence
from itertools import count, islice, pairwise
from pathlib import Path
from struct import Struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.channels.ends import (
    BLOCKING,
    CAPACITY,
    KINDS,
    MEMORY,
    RUNNING,
    Child,
    reading,
    writing,
)
from slotwise.jobs.channels import streams, wire
from slotwise.jobs.channels.carriers import BrokenChannelError, Packed
from slotwise.jobs.channels.ring import SharedRing
from slotwise.jobs.channels.streams import Reader, Writer
from tiers import examples

MIXED: list[object] = [
    None,
    ("word", 1),
    {"a": [1, 2.5]},
    b"",
    np.arange(50_000),
    "x" * 5 * CAPACITY,
    pa.table({"a": [1, 2, None], "b": ["x", "y", "z"]}),
    pa.record_batch({"c": pa.array(["u", "v", "u"]).dictionary_encode()}),
    pa.table({"a": pa.array([], pa.int64())}),
    pa.record_batch({"a": pa.array([], pa.int64())}),
    (np.zeros(20_000), b"y" * 100_000, np.ones((3, 7000), order="F")),
    *range(300),
]


def plain(record: object) -> object:
    """A record in a form that can be compared."""
    if isinstance(record, np.ndarray):
        return "array", record.dtype, record.shape, record.tobytes()
    if isinstance(record, pa.Table | pa.RecordBatch):
        return type(record), record.schema, record.to_pylist()
    if isinstance(record, tuple):
        return tuple(map(plain, record))
    return type(record), record


def write_and_close(writer: Writer, records: Sequence[object]) -> None:
    """Write records one by one."""
    with writer:
        for record in records:
            writer.write(record)


@pytest.mark.parametrize("kind", KINDS)
def test_records_arrive_in_order(kind: str, tmp_path: Path) -> None:
    """Values, arrays and Arrow tables; some are several times as large as the ring."""
    with reading(kind, lambda writer: write_and_close(writer, MIXED), tmp_path) as (
        reader,
        child,
    ):
        assert list(map(plain, reader)) == list(map(plain, MIXED))
        assert child.outcome() == ("done", None)
        assert list(reader) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_without_records_ends(kind: str, tmp_path: Path) -> None:
    """The reader of a writer that is closed at once gets nothing, without an error."""
    with reading(kind, lambda writer: writer.close(), tmp_path) as (reader, _):
        assert list(reader) == []


RECORDS = st.lists(
    st.one_of(
        st.none(),
        st.integers(),
        st.tuples(st.text(max_size=9), st.floats(allow_nan=False)),
        st.integers(0, 4 * CAPACITY).map(lambda size: b"b" * size),
        st.integers(0, 4 * CAPACITY).map(lambda size: np.arange(size // 2, dtype="u4")),
        st.integers(0, CAPACITY).map(lambda size: pa.table({"t": [size] * size})),
        st.integers(0, CAPACITY).map(lambda size: pa.record_batch({"t": ["ab"] * size})),
        st.lists(st.dictionaries(st.text(max_size=3), st.booleans()), max_size=4),
    ),
    max_size=40,
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_random_records_arrive(kind: str) -> None:
    """Written alone or together, sent early or late, they are the same at the other end."""

    @settings(max_examples=examples(6, slow=60))
    @given(records=RECORDS, seed=st.integers(0, 1000))
    def check(records: list[object], seed: int) -> None:
        def body(writer: Writer) -> None:
            rng, left = random.Random(seed), list(records)
            while left:
                size = rng.choice((1, 1, 1, 20))
                writer.write_all(left[:size]) if size > 1 else writer.write(left[0])
                del left[:size]
                if rng.random() < 0.2:
                    writer.flush()
            writer.close()

        with (
            tempfile.TemporaryDirectory() as folder,
            reading(kind, body, Path(folder)) as (reader, child),
        ):
            assert list(map(plain, reader)) == list(map(plain, records))
            assert child.outcome() == ("done", None)

    check()


@pytest.mark.parametrize("kind", RUNNING)
def test_a_record_that_cannot_be_pickled_is_named(kind: str, tmp_path: Path) -> None:
    """Both ends get its type; the lambda before it can be pickled, by cloudpickle."""

    def body(writer: Writer) -> None:
        with writer:
            writer.write_all([lambda: 2, threading.Lock()])

    with reading(kind, body, tmp_path) as (reader, child):
        with pytest.raises(BrokenChannelError, match=r"of type _thread\.lock cannot be"):
            list(reader)
        name, text = child.outcome()
        assert name == "TypeError"
        assert text.startswith("a record of type _thread.lock cannot be pickled")


class AlarmedError(Exception):
    """What a handler of a signal raises."""


class Alarming:
    """A record that is pickled while a signal comes."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        signal.raise_signal(signal.SIGUSR1)
        return Alarming, ()


def test_the_exception_of_a_signal_while_a_record_is_pickled_is_raised() -> None:
    """The record itself can be pickled."""
    errors = [AlarmedError()]

    def handler(*_: object) -> None:
        if errors:
            raise errors.pop()

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(AlarmedError):
            Packed().add([1, Alarming()])
        Packed().add([1, Alarming()])
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("kind", KINDS)
def test_functions_and_classes_of_a_script_pass(kind: str, tmp_path: Path) -> None:
    """What plain pickle refuses is pickled by cloudpickle."""
    records = [lambda: 2, lambda: 3]
    with reading(kind, lambda w: write_and_close(w, records), tmp_path) as (reader, _):
        assert [record() for record in reader] == [2, 3]  # type: ignore[operator]


@pytest.mark.parametrize("kind", RUNNING)
def test_a_writer_that_fails_says_why(kind: str, tmp_path: Path) -> None:
    """The reader gets what was sent before, then the reason; further reading raises again."""

    def body(writer: Writer) -> None:
        writer.write_all(range(10))
        writer.flush()
        writer.fail("no more paper")

    with reading(kind, body, tmp_path) as (reader, _):
        got = []
        with pytest.raises(BrokenChannelError, match="no more paper"):
            got += reader
        assert isinstance(reader.failure, BrokenChannelError)
        with pytest.raises(BrokenChannelError, match="no more paper"):
            list(reader)


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_writer_that_is_interrupted_says_why(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler raises anywhere in a write; the reason still arrives."""
    monkeypatch.setattr(wire, "FAIL_SECONDS", 60.0)  # However slow the machine is.

    def body(writer: Writer) -> None:
        def interrupt(*_: object) -> None:
            raise RuntimeError("stop now")

        signal.signal(signal.SIGUSR1, interrupt)
        with writer:
            for _ in count():
                writer.write(bytes(300_000))

    with reading(kind, body, tmp_path) as (reader, child):
        records = iter(reader)
        next(records)
        os.kill(child.pid, signal.SIGUSR1)
        with pytest.raises(BrokenChannelError, match="RuntimeError: stop now"):
            list(records)


@pytest.mark.parametrize("kind", RUNNING)
def test_a_reader_that_fails_says_why(kind: str, tmp_path: Path) -> None:
    """The next write of the other end raises with the reason, also one that waits for room."""

    def body(reader: Reader) -> None:
        next(iter(reader))
        reader.fail("the disk is full")

    with (
        writing(kind, body, tmp_path) as (writer, _),
        pytest.raises(BrokenChannelError, match="the disk is full"),
    ):
        writer.write_all(bytes(10_000) for _ in count())


@pytest.mark.parametrize("kind", RUNNING)
def test_a_reader_that_closes_early_stops_no_writer(kind: str, tmp_path: Path) -> None:
    """What is written from then on is dropped, and the writer ends as usual."""

    def body(reader: Reader) -> object:
        first = list(islice(reader, 3))
        reader.close()
        return first

    with writing(kind, body, tmp_path) as (writer, child):
        writer.write_all(("record", number, bytes(10_000)) for number in count())
        assert not writer.is_wanted
        for number in range(10_000):
            writer.write(number)
        writer.close()
        assert child.outcome()[1] == [("record", n, bytes(10_000)) for n in range(3)]


@pytest.mark.parametrize("kind", ["file", "spilling file"])
def test_a_file_may_be_closed_early(kind: str, tmp_path: Path) -> None:
    """The rest of the stream is not read."""
    with reading(kind, lambda w: write_and_close(w, range(10**5)), tmp_path) as (reader, _):
        assert list(islice(reader, 3)) == [0, 1, 2]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", RUNNING)
def test_the_death_of_the_writer_breaks_the_channel(kind: str, tmp_path: Path) -> None:
    """It is killed at a random moment: the reader gets the first records, then the reason."""
    rng = random.Random(0)
    for _ in range(examples(4, slow=50)):
        size, before = rng.choice((1, 100, 3 * CAPACITY)), rng.randrange(40)

        def body(writer: Writer, size: int = size) -> None:
            writer.write_all((number, bytes(size)) for number in count())

        with reading(kind, body, tmp_path) as (reader, child):
            records = iter(reader)
            got = list(islice(records, before))
            child.kill()
            with pytest.raises(BrokenChannelError, match="ended without closing"):
                got.extend(records)
            assert got == [(number, bytes(size)) for number in range(len(got))]


@pytest.mark.parametrize("kind", RUNNING)
def test_the_death_of_the_reader_breaks_the_channel(kind: str, tmp_path: Path) -> None:
    """The writer raises, also if it waits for room in the middle of a record."""
    rng = random.Random(1)
    for _ in range(examples(2, slow=30)):
        wanted = rng.randrange(20)

        def body(reader: Reader, wanted: int = wanted) -> None:
            list(islice(reader, wanted))
            os.kill(os.getpid(), signal.SIGKILL)

        with writing(kind, body, tmp_path) as (writer, child):
            with pytest.raises(BrokenChannelError, match="ended without closing"):
                writer.write_all(bytes(3 * CAPACITY) for _ in count())
            assert child.outcome() is None


@pytest.mark.parametrize("kind", BLOCKING)
def test_children_of_a_node_do_not_hide_its_death(kind: str, tmp_path: Path) -> None:
    """A process that the writer has forked lives on; the channel breaks all the same."""
    told, tell = os.pipe()

    def body(writer: Writer) -> None:
        writer.write_all(range(10))
        pid = os.fork()
        if pid == 0:
            signal.pause()
        os.write(tell, str(pid).encode())
        signal.pause()

    with reading(kind, body, tmp_path) as (reader, child):
        grandchild = int(os.read(told, 20))
        child.kill()
        with pytest.raises(BrokenChannelError, match="ended without closing"):
            list(reader)
        os.kill(grandchild, signal.SIGKILL)
    os.close(told)
    os.close(tell)


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_writer_waits_for_its_reader(kind: str, tmp_path: Path) -> None:
    """It is never ahead by more than the channel, the buffers of the system and two batches."""
    written, size = Struct("Q"), 1 << 16
    memory = mmap.mmap(-1, 8)
    ahead_most = (CAPACITY if kind == "shm" else 16 << 20) + 6 * size

    def body(writer: Writer) -> None:
        with writer:
            for number in range(600):
                writer.write((number, bytes(size)))
                written.pack_into(memory, 0, number)

    with reading(kind, body, tmp_path) as (reader, _):
        for number, _ in reader:  # type: ignore[misc]
            ahead = written.unpack_from(memory)[0] - number
            assert ahead * size <= ahead_most


def test_a_spilling_writer_never_waits(tmp_path: Path) -> None:
    """It ends while nothing is read; little is in memory, the rest in a file without a name."""
    records = [(number, bytes(1000)) for number in range(2000)]
    with reading("spilling shm", lambda w: write_and_close(w, records), tmp_path) as (r, child):
        assert child.outcome() == ("done", None)
        store = r._source
        assert store._bytes <= MEMORY  # type: ignore[attr-defined]
        assert list(tmp_path.iterdir()) == []
        assert list(r) == records


def test_what_waits_is_sent_before_a_node_waits_for_input(tmp_path: Path) -> None:
    """A node answers each record; its answers do not wait for others that never come."""
    there, back = SharedRing(CAPACITY), SharedRing(CAPACITY)

    def node() -> None:
        with there.reader() as reader, back.writer() as writer:
            writer.write_all(reader)

    child = Child(node)
    with there.writer() as writer, back.reader() as reader:
        answers = iter(reader)
        for number in range(200):
            writer.write(number)
            assert next(answers) == number
    assert child.outcome() == ("done", None)


def test_records_that_come_steadily_are_sent_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few they are, some are sent whenever 50 ms have passed since the last sending."""
    now, sent = [0.0], []
    monkeypatch.setattr(streams, "monotonic", lambda: now[0])

    class Sink:
        def send(self, parts: object) -> None:
            sent.append(now[0])

    writer = Writer(Sink())  # type: ignore[arg-type]
    for tick in range(1, 1001):
        now[0] = tick / 1000
        writer.write_all(range(20)) if tick % 2 else writer.write(0)
    pauses = [later - sooner for sooner, later in pairwise([0.0, *sent])]
    assert sent[-1] > 0.94
    assert max(pauses) < 0.052


def test_the_first_record_after_a_pause_is_sent_at_once(tmp_path: Path) -> None:
    """A write 50 ms after the last sending does not wait for others."""

    def body(writer: Writer) -> None:
        writer._due = 0.0
        writer.write("first")
        signal.pause()

    with reading("shm", body, tmp_path) as (reader, _):
        assert next(iter(reader)) == "first"
