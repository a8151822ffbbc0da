"""Base classes of user programs: MapReduce by records and by batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from slotwise.core.job import COPY_KIND
from slotwise.jobs.commit import Layout

if TYPE_CHECKING:
    import pyarrow as pa


Pair = tuple[Any, Any]


class Program:
    """The common base of both styles. A subclass or an instance may set each attribute."""

    num_reducers: int | None = None
    """A fixed number of reduces, which overrides the job's; 0 makes the program map-only."""

    map_bytes_per_second: float = 20e6
    """The estimated bytes of input that a map task processes in a second."""

    reduce_bytes_per_second: float = 50e6
    """The estimated bytes of the job's input that a reduce task processes in a second."""

    path: str = ""
    """The input file of the records that `map` receives; set before its first record."""

    @property
    def name(self) -> str:
        """The name of the program in messages."""
        return type(self).__name__

    def on_preempt(self, seconds_left: float) -> None:
        """Handle a stop request in a running task, which is killed after `seconds_left`.

        The default does nothing: the task continues, and counts if it ends in time. An
        override may end the task with `slotwise.task.stop`. It is not called in a reduce that
        still waits for maps, which ends at once because it has nothing to keep. Only the value
        passed to `stop` is kept; the next attempt begins at the start of the input.
        """


class MapReduce(Program):
    """A program by records: subclass it and define `map` and, usually, `reduce`.

    Optional methods, found by their names:

    - `combine(self, key, values)` yields pairs like `reduce`. It may be applied any number of
      times to part of a key's values, before and after the shuffle, to shuffle less data.
    - `add(self, one, other)` returns two values of a key as one: a combine that is shorter to
      write and takes less memory. `reduce` then gets one value for each key.
    - `map_chunk(self, text)` yields the pairs of many whole lines of text at once.
    - `fold_chunk(self, text, table)` adds the pairs of many whole lines in place to `table`, a
      Counter that maps keys to added values; the program must also define `add`.

    The last two are shortcuts for text input. Their result must equal that of `map` for each
    line. Lines in a chunk keep their line breaks from the file.
    """

    total_order: bool = False
    """Whether the output parts, read in sequence, are sorted as a whole."""

    descending: bool = False
    """Whether keys are sorted from the largest to the smallest."""

    def map(self, key: Any, value: Any) -> Iterable[Pair] | None:
        """Return the pairs of one record. For text, key is a byte offset, and value a line."""
        raise NotImplementedError(f"{self.name} has no map")

    def reduce(self, key: Any, values: Iterator[Any]) -> Iterable[Pair] | None:
        """Return the output pairs of a key and all its values, which are in input order.

        The default returns each value with its key.
        """
        return ((key, value) for value in values)

    def partition(self, key: Any, reducers: int) -> int:
        """Return the number of the reduce that gets this key, 0 <= number < `reducers`.

        The default is a hash that is the same in every process and run.
        """
        return stable_hash(key) % reducers

    def sort_key(self, key: Any) -> Any:
        """Return the value by which a key is sorted within a reduce; by default the key itself.

        Keys with equal sort keys are sorted by the keys themselves.
        """
        return key


class BatchMapReduce(Program):
    """A program by batches of Arrow tables: subclass it, set `keys`, define `map`.

    The optional method `combine(self, table)` gets some of the mapped rows and returns a table
    of the same columns with fewer rows. It may be applied any number of times before the
    shuffle.
    """

    keys: tuple[str, ...] = ()
    """The columns of the mapped tables by which rows are shuffled, sorted and grouped."""

    def map(self, table: pa.Table) -> pa.Table | Iterable[pa.Table] | None:
        """Return the mapped tables of a batch of rows; text has columns offset and line."""
        raise NotImplementedError(f"{self.name} has no map")

    def reduce(self, table: pa.Table) -> pa.Table | Iterable[pa.Table] | None:
        """Return the output tables of rows sorted by `keys`; all rows of a key are in one call.

        A table is the whole partition if that fits in the task's memory, else a part of it.
        The default returns the table unchanged.
        """
        return table


# The paths of a MapReduce job's files while it runs, and of its output.

COPY_PHASE = f"reduce-{COPY_KIND}"
"""The phase that copies map output for the reduces, if the job has a separate one."""


@dataclass(frozen=True, slots=True)
class MapReduceLayout(Layout):
    """The paths of one MapReduce job; `suffix` ends the names of its parts."""

    suffix: str

    def map_file(self, task: int, attempt: int) -> Path:
        """Return the path of the map output of one attempt."""
        return self.attempt_dir("map", task, attempt) / "pairs"

    def copied_file(self, phase: str, task: int, attempt: int) -> Path:
        """Return the file into which one attempt copies the map outputs for one reduce."""
        return self.attempt_dir(phase, task, attempt) / "copied"

    @property
    def finished_maps(self) -> Path:
        """The file that lists the finished maps."""
        return Path(self.work_dir) / "finished-maps"

    def attempt_part(self, phase: str, task: int, attempt: int) -> str:
        """Return the path at which an attempt writes its part of the output."""
        return self.staged(self.part_name(phase, task), attempt)

    def part_name(self, phase: str, task: int) -> str:
        """Return the final name of a part: part-r-00000 of a reduce, part-m-00000 of a map."""
        return f"part-{phase[0]}-{task:05}{self.suffix}"


# Assignment of keys to reduces, by a hash that is the same in every process.


def stable_hash(key: Any) -> int:
    """Return a number >= 0 that is equal for equal keys, independent of PYTHONHASHSEED.

    Supports strings, bytes, numbers, None, dates, and tuples and frozensets of these. Raises
    TypeError for other keys, because their `hash()` may differ between processes.
    """
    if isinstance(key, str):
        return crc32(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, bytes):
        return crc32(key)
    if key is None:
        return 0
    if isinstance(key, Number):
        if key != key:
            return 1
        # Equal numbers of any types have equal hashes, which do not depend on a seed.
        return crc32(hash(key).to_bytes(8, "little", signed=True))
    if isinstance(key, tuple):
        return crc32(b"".join(stable_hash(item).to_bytes(4, "little") for item in key))
    if isinstance(key, frozenset):
        return sum(set(map(stable_hash, key))) % 2**32  # The set counts all NaN once.
    if isinstance(key, datetime):
        # Two datetimes with time zones are equal if their instants are equal.
        return stable_hash(key.isoformat() if key.tzinfo is None else key.timestamp())
    if isinstance(key, date):
        return crc32(key.toordinal().to_bytes(4, "little"))
    raise TypeError(
        f"no stable hash for a key of type {type(key).__name__}: {key!r:.80}; use strings,"
        " numbers or tuples of them as keys, or define partition(self, key, reducers)"
    )


def hash_partitions(keys: Sequence[Any], reducers: int) -> list[int]:
    """Return the reduce of each key, by its stable hash."""
    if reducers == 1:
        return [0] * len(keys)
    try:
        # Nearly all keys are strings, and encode() is most of the cost.
        return [crc32(key.encode()) % reducers for key in keys]
    except (AttributeError, UnicodeEncodeError):
        return [stable_hash(key) % reducers for key in keys]
