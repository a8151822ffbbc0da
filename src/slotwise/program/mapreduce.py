"""What a user writes: a MapReduce program, by records or by batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from slotwise.program.shuffle.hashing import stable_hash

if TYPE_CHECKING:
    import pyarrow as pa

Pair = tuple[Any, Any]


class Program:
    """What both styles share; each attribute may be set by a subclass or on an instance."""

    num_reducers: int | None = None
    """A fixed number of reduces, whatever the job says; 0 makes the program map-only."""

    map_bytes_per_second: float = 20e6
    """Estimate: how many bytes of input a map task takes in a second."""

    reduce_bytes_per_second: float = 50e6
    """Estimate: how many bytes of the job's input the reduces take in a second."""

    path: str = ""
    """The input file whose records `map` is being given; set before its first record."""

    @property
    def name(self) -> str:
        """The name of the program in messages."""
        return type(self).__name__

    def on_preempt(self, seconds_left: float) -> None:
        """Called in a running task that is told to stop: it is killed after so many seconds.

        Unless overridden, nothing is done, and the task goes on: it counts if it ends in time.
        It may end the task by `slotwise.task.stop`. A reduce that still waits for maps is not
        asked: it ends, for it has nothing to keep. Nothing of a task by records or batches is
        kept but what is given to `stop`; its next attempt begins from the start of its input.
        """


class MapReduce(Program):
    """A program by records: derive from it and write `map` and, mostly, `reduce`.

    Optional methods, found by their names:

    - `combine(self, key, values)` yields pairs like `reduce`, and may be applied any number of
      times to part of a key's values, before the shuffle and after it: less is shuffled.
    - `add(self, one, other)` gives two values of a key as one: a combine that is shorter to
      write and takes less memory. `reduce` then gets one value for each key.
    - `map_chunk(self, text)` yields the pairs of many whole lines of text at once.
    - `fold_chunk(self, text, table)` adds the pairs of many whole lines to `table`, a Counter
      that maps keys to added values, in place; the program needs `add` as well.

    The last two are short cuts for text input and must mean the same as `map` line by line.
    Lines in a chunk end as they do in the file.
    """

    total_order: bool = False
    """Whether the output parts, read one after another, are sorted as a whole."""

    descending: bool = False
    """Whether keys are sorted from the largest to the smallest."""

    def map(self, key: Any, value: Any) -> Iterable[Pair] | None:
        """The pairs of one record; for text the key is its byte offset, the value its line."""
        raise NotImplementedError(f"{self.name} has no map")

    def reduce(self, key: Any, values: Iterator[Any]) -> Iterable[Pair] | None:
        """The output pairs of a key and all its values, which come in the order of the input.

        Unless overridden, each value with its key.
        """
        return ((key, value) for value in values)

    def partition(self, key: Any, reducers: int) -> int:
        """The number, below `reducers`, of the reduce that gets this key.

        Unless overridden, a hash that is the same in every process and run.
        """
        return stable_hash(key) % reducers

    def sort_key(self, key: Any) -> Any:
        """What keys are sorted by within a reduce; unless overridden, the key itself.

        Keys that share a sort key are then sorted by themselves.
        """
        return key


class BatchMapReduce(Program):
    """A program by batches of Arrow tables: derive from it, set `keys`, write `map`.

    The optional method `combine(self, table)` gets some of the mapped rows and returns a table
    of the same columns with fewer; it may be applied any number of times before the shuffle.
    """

    keys: tuple[str, ...] = ()
    """The columns of the mapped tables by which rows are shuffled, sorted and grouped."""

    def map(self, table: pa.Table) -> pa.Table | Iterable[pa.Table] | None:
        """The mapped tables of a batch of input rows; text has the columns offset and line."""
        raise NotImplementedError(f"{self.name} has no map")

    def reduce(self, table: pa.Table) -> pa.Table | Iterable[pa.Table] | None:
        """The output tables of rows sorted by `keys`; no key is cut between two tables.

        One table is the whole partition, unless that does not fit the task's memory. Unless
        overridden, the table as it is.
        """
        return table
