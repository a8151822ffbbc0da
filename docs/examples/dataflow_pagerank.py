"""PageRank in unrolled rounds: the most central words of the Apache licence (TextRank)."""

import tempfile
from collections import defaultdict
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

import slotwise

LICENCE = Path(__file__).parents[2] / "LICENSE"
ROUNDS, DAMPING, COPIES = 10, 0.85, 2

first = itemgetter(0)


def links(lines):
    """A word links to the next word of at least five letters, and that one links back."""
    text = " ".join(lines).lower().split()
    words = [word for word in text if len(word) >= 5 and word.isalpha()]
    for one, other in pairwise(words):
        yield one, other
        yield other, one


def neighbours(pairs):
    """Each word with the words that it links to."""
    found = defaultdict(set)
    for one, other in pairs:
        found[one].add(other)
    for word in sorted(found):
        yield word, sorted(found[word])


def begin(pages):
    """Every word begins with rank 1."""
    for word, _ in pages:
        yield word, 1.0


def spread(pages, ranks):
    """Each word gives its rank to its neighbours in equal parts."""
    rank = dict(ranks)
    for word, others in pages:
        for other in others:
            yield other, rank[word] / len(others)


def gather(shares):
    """The rank of a word is what it is given."""
    sums = defaultdict(float)
    for word, share in shares:
        sums[word] += share
    for word in sorted(sums):
        yield word, 1 - DAMPING + DAMPING * sums[word]


def best(ranks, number):
    """The words with the highest ranks."""
    return sorted(ranks, key=lambda pair: (-pair[1], pair[0]))[:number]


flow = slotwise.Dataflow()
pairs = flow.node(links, flow.read(LICENCE), copies=1)
pages = flow.node(neighbours, pairs.file(by=first), copies=COPIES)
ranks = flow.node(begin, pages, copies=COPIES)
for number in range(ROUNDS):
    shares = flow.node(spread, pages, ranks, copies=COPIES, name=f"spread-{number}")
    ranks = flow.node(gather, shares.file(by=first), copies=COPIES, name=f"gather-{number}")
top = flow.node(best, ranks, parameters={"number": 5})
flow.write(top)

if __name__ == "__main__":
    out = Path(tempfile.mkdtemp()) / "out"
    result = slotwise.run([flow.job("rank", out)], slots=2)
    print("failed:", result.failed)
    for line in (out / "part-n-00000").read_text().splitlines():
        word, rank = line.split("\t")
        print(f"{float(rank):.2f} {word}")
