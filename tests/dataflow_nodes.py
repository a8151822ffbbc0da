"""Functions of nodes that worker processes import."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

from slotwise import Output


def doubled(numbers: Iterator[int]) -> Iterator[int]:
    """Twice each number."""
    for number in numbers:
        yield 2 * number


def total(numbers: Iterator[int]) -> Iterator[int]:
    """Their sum."""
    yield sum(numbers)


def parity(numbers: Iterator[int]) -> Iterator[Output]:
    """Even and odd numbers, with their squares."""
    for number in numbers:
        yield Output("odd" if number % 2 else "even", (number, number**2))


def failing(numbers: Iterator[int], how: str) -> Iterator[int]:
    """Fails after some records, in a way of its own."""
    for number in numbers:
        if number == 500:
            if how == "raises":
                raise ValueError("no 500, please")
            if how == "exits":
                sys.exit("enough")
            os.kill(os.getpid(), signal.SIGKILL)
        yield number


def endless() -> Iterator[int]:
    """All natural numbers."""
    yield from count()


def first_three(*streams: Iterator[int]) -> Iterator[int]:
    """Three records of each stream."""
    for stream in streams:
        yield from islice(stream, 3)


def dying_once(numbers: Iterator[int], marker: str) -> Iterator[int]:
    """Removes a file and kills its process after some records; the next attempt succeeds."""
    for number in numbers:
        if number == 500 and Path(marker).exists():
            Path(marker).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        yield number


def stuck(numbers: Iterator[int], folder: str) -> Iterator[int]:
    """Names its process in a folder, and hangs without reading."""
    Path(folder, f"pid-{os.getpid()}").touch()
    while True:
        time.sleep(1000)
    yield from numbers


def marked_slowly(numbers: Iterator[int]) -> Iterator[tuple[int, bytes]]:
    """Each number with some kilobytes; slow enough for other hosts to take a copy, too."""
    time.sleep(0.3)
    for number in numbers:
        yield number, bytes([number % 251]) * 20_000


def marks(numbers: Iterator[tuple[int, bytes]]) -> Iterator[str]:
    """The numbers, and whether their kilobytes are right."""
    time.sleep(0.3)
    for number, mark in numbers:
        yield f"{number} {mark == bytes([number % 251]) * 20_000}"


def number_of(record: tuple[int, bytes]) -> int:
    """The number of a record."""
    return record[0]


def slow_words(lines: Iterator[str]) -> Iterator[str]:
    """The words of lines, a few milliseconds for each hundred."""
    for number, line in enumerate(lines):
        if not number % 100:
            time.sleep(0.02)
        yield from line.split()


def word(word: str) -> str:
    """The key of a word."""
    return word


def word_of(pair: tuple[str, int]) -> str:
    """The key of a word with a number."""
    return pair[0]


def counted_words(words: Iterator[str]) -> Iterator[tuple[str, int]]:
    """How often each word comes, after a moment."""
    found = Counter(words)
    time.sleep(0.3)
    yield from found.items()


def failing_once(numbers: Iterator[int], marker: str) -> Iterator[int]:
    """Removes a file and fails after the last record; the next attempt succeeds."""
    yield from numbers
    if Path(marker).exists():
        Path(marker).unlink()
        raise ValueError("try again")


def as_lines(pairs: Iterator[tuple[str, int]]) -> Iterator[str]:
    """Texts of a word and a number."""
    for found, number in pairs:
        yield f"{found} {number}"


def itself(records: Iterator[object]) -> Iterator[object]:
    """All records."""
    yield from records


def waiting() -> Iterator[int]:
    """One number, after a moment."""
    time.sleep(0.4)
    yield 1


def reached_at(numbers: Iterator[int]) -> Iterator[str]:
    """The address of this host, those at which its writers reach it, and the sum of all."""
    import psutil

    number = next(numbers)
    found = psutil.Process().net_connections("tcp")
    reached = sorted({one.laddr.ip for one in found})
    here = os.environ["SLOTWISE_ADDRESS"].rpartition(":")[0]
    yield f"{here} {','.join(reached)} {number + sum(numbers)}"


def links(numbers: Iterator[int]) -> Iterator[str]:
    """How many TCP connections of this process are without TLS, and with it."""
    import psutil

    first = next(numbers)
    here = {one.fd for one in psutil.Process().net_connections("tcp")}
    found = [each for each in gc.get_objects() if type(each).__name__ == "SSLSocket"]
    encrypted = here & {each.fileno() for each in found}
    yield f"{len(here - encrypted)} {len(encrypted)} {first + sum(numbers)}"


def padded(numbers: Iterator[int]) -> Iterator[tuple[int, bytes]]:
    """Each number with a tenth of a megabyte."""
    for number in numbers:
        yield number, bytes([number % 251]) * 100_000


def compared(ones: Iterator[object], others: Iterator[object]) -> Iterator[str]:
    """How many records are the same in two streams, and how many are not."""
    pairs = [one == other for one, other in zip(ones, others, strict=True)]
    yield f"{pairs.count(True)} {pairs.count(False)}"
