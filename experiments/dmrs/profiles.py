"""Seconds a byte of DMRS's three benchmarks, measured by running ours on this machine.

Bytes are bytes of the job's input, in both phases: a reduce counts its part of the input.
Tasks have the paper's size, 64 MB, because the merge work of a word count depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import numpy as np

import slotwise
from slotwise.core.history import read_history
from slotwise.core.rates import estimate_rates
from slotwise.jobs.builtin.teragen import TeraGen

MB = 1 << 20

TASK_BYTES = 64 * MB
"""The input of a map, as for most of the paper's (DMRS VI)."""

MAPS = 2
"""Maps of each measured job."""

REDUCES: Mapping[str, int] = MappingProxyType({"wordcount": 1, "sort": 4, "terasort": 4})
"""The benchmarks, each with the reduces of its jobs (DMRS VI)."""

LABELS: Mapping[str, str] = MappingProxyType(
    {"wordcount": "WordCount", "sort": "Sort", "terasort": "TeraSort"}
)

WORDS = 200_000
"""Different words of a text. The k-th one occurs in proportion to 1/k (Zipf's law)."""

DRAWN = 1_000_000
"""Words drawn at once."""

LINE = 12
"""Words in a line."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Seconds for each byte of the job's input, on one slot of this machine."""

    map_seconds: float
    reduce_seconds: float


def measure(benchmark: str, task_bytes: int = TASK_BYTES, maps: int = MAPS) -> Profile:
    """Run a benchmark with one slot on generated input, and read its rates.

    It takes about 10 s, and temporary disk space of four times the input.
    """
    with TemporaryDirectory(prefix="slotwise-") as name:
        folder = Path(name)
        inputs = write_input(benchmark, folder, task_bytes * maps)
        history = folder / "history.db"
        job = slotwise.mapreduce(
            benchmark,
            inputs,
            folder / "output",
            reducers=REDUCES[benchmark],
            split_bytes=task_bytes,
        )
        result = slotwise.run([job], "fifo", slots=1, history=history)
        assert not result.failed, result.failed
        rates = estimate_rates(read_history(history)).by_phase
    return Profile(*(rates[benchmark, phase].seconds_per_byte for phase in ("map", "reduce")))


def write_input(benchmark: str, folder: Path, size: int) -> str:
    """Make input of about this number of bytes; return the paths of its files."""
    if benchmark == "wordcount":
        with (folder / "text.txt").open("w", encoding="ascii") as file:
            for text in words(size):
                file.write(text)
        return str(folder / "text.txt")
    records = {"records": size // TeraGen.record_bytes}
    made = slotwise.mapreduce("teragen", output=folder / "records", parameters=records)
    slotwise.run([made], "fifo")
    return str(folder / "records" / "part*")


def words(size: int, seed: int = 0) -> Iterator[str]:
    """A text of this number of characters, in pieces: random words, the frequent ones short."""
    rng = np.random.default_rng(seed)
    known = np.array([_word(number) for number in range(1, WORDS + 1)], dtype=object)
    while size > 0:
        # The logarithms of ranks are uniformly distributed.
        ranks = np.exp(rng.random(DRAWN) * np.log(WORDS)).astype(np.intp) - 1
        drawn = known[ranks].tolist()
        lines = (" ".join(drawn[at : at + LINE]) for at in range(0, len(drawn), LINE))
        text = "\n".join(lines)[: size - 1] + "\n"
        size -= len(text)
        yield text


def _word(number: int) -> str:
    """a, b, ..., z, aa, ab, ...: a distinct word for each number from 1 on."""
    letters = ""
    while number:
        number, letter = divmod(number - 1, 26)
        letters = chr(ord("a") + letter) + letters
    return letters
