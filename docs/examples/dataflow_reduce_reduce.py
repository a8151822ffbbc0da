"""Map, reduce and reduce again in one job: how many words occur how often in a licence."""

import tempfile
from collections import Counter
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import slotwise

LICENCE = Path(__file__).parents[2] / "LICENSE"

first = itemgetter(0)


def words(lines):
    """The words of a part of the text, counted."""
    counts = Counter(word for line in lines for word in line.lower().split() if word.isalpha())
    return counts.items()


def add(pairs):
    """One pair for each key: pairs arrive sorted by key."""
    for key, group in groupby(pairs, first):
        yield key, sum(number for _, number in group)


def frequencies(counts):
    """A pair for each word: how often it occurs, and one word."""
    for _, number in counts:
        yield number, 1


flow = slotwise.Dataflow()
lines = flow.read(LICENCE, split_bytes=4096)  # three splits
counted = flow.node(words, lines)  # three copies, each of which reads a split
totals = flow.node(add, counted.file(by=first, sort=True), copies=3, name="totals")
ones = flow.node(frequencies, totals.shm())
spread = flow.node(add, ones.file(by=first, sort=True), name="spread")
flow.write(spread)

if __name__ == "__main__":
    out = Path(tempfile.mkdtemp()) / "out"
    result = slotwise.run([flow.job("words", out)], slots=2)
    print("failed:", result.failed)
    for line in (out / "part-n-00000").read_text().splitlines()[:5]:
        times, number = line.split("\t")
        print(f"{number} words occur {times} times")
