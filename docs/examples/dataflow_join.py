"""A join of two inputs: records with the same key meet in the same copy of a node."""

import tempfile
from operator import itemgetter
from pathlib import Path

import slotwise

folder = Path(tempfile.mkdtemp())
(folder / "people.csv").write_text("ada,London\nalan,Manchester\ngrace,New York\n")
(folder / "orders.csv").write_text("alan,paper\nada,ink\ngrace,tape\nada,punched cards\n")


def fields(lines):
    """The fields of each line."""
    for line in lines:
        yield tuple(line.split(","))


def join(people, orders):
    """Each order with the town of its person; both inputs have the person first."""
    towns = dict(people)
    for person, thing in orders:
        yield person, thing, towns[person]


def collect(joined):
    """All records in order."""
    return sorted(joined)


flow = slotwise.Dataflow()
people = flow.node(fields, flow.read(folder / "people.csv"), name="people")
orders = flow.node(fields, flow.read(folder / "orders.csv"), name="orders")
key = itemgetter(0)
joined = flow.node(join, people.file(by=key), orders.file(by=key), copies=2)
flow.write(flow.node(collect, joined))

if __name__ == "__main__":
    result = slotwise.run([flow.job("join", folder / "out")], slots=2)
    print("failed:", result.failed)
    print((folder / "out" / "part-n-00000").read_text(), end="")
