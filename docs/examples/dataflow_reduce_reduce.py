"""Map, reduce and reduce again in one job: how many words occur how often in a licence."""

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
lines = flow.read(LICENCE, split_bytes=4096)  # three splits, read by three copies
counted = flow.node(words, lines)
totals = flow.node(add, counted.file(by=first, sort=True), copies=3, name="totals")
ones = flow.node(frequencies, totals.shm())
spread = flow.node(add, ones.file(by=first, sort=True), name="spread")
flow.write(spread)

for times, number in flow.evaluate(spread)[:5]:
    print(f"{number} words occur {times} times")
