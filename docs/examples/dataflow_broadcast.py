"""A broadcast: each copy of a node gets all of a small stream and a part of a large one."""

import tempfile
from pathlib import Path

import slotwise

LICENCE = Path(__file__).parents[2] / "LICENSE"


def common(lines):
    """The words of five letters or more that occur in the first ten lines."""
    words = {word.strip("(),.").lower() for line in list(lines)[:10] for word in line.split()}
    return sorted(word for word in words if len(word) >= 5 and word.isalpha())


def matches(lines, wanted):
    """How often the wanted words occur in a part of the text."""
    wanted = set(wanted)
    words = [word.strip("(),.").lower() for line in lines for word in line.split()]
    yield sum(word in wanted for word in words)


def total(numbers):
    """The sum of all parts."""
    yield sum(numbers)


flow = slotwise.Dataflow()
lines = flow.read(LICENCE, split_bytes=4096)
wanted = flow.node(common, lines, copies=1)  # one copy reads all splits in order
found = flow.node(matches, lines, wanted.tcp(broadcast=True))
flow.write(flow.node(total, found))

if __name__ == "__main__":
    print("copies of matches:", flow.graph().nodes["matches"].copies)
    print("words:", *flow.evaluate(wanted))

    out = Path(tempfile.mkdtemp()) / "out"
    result = slotwise.run([flow.job("words", out)], slots=4)
    print("failed:", result.failed)
    print("occurrences:", (out / "part-n-00000").read_text(), end="")
