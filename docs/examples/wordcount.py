"""A custom MapReduce program, run in two worker processes."""

import tempfile
from pathlib import Path

import slotwise
from slotwise import MapReduce, mapreduce


class Lengths(MapReduce):
    """Counts the words of each length."""

    def map(self, key, value):
        for word in value.split():
            yield len(word), 1

    def add(self, one, other):
        return one + other


folder = Path(tempfile.mkdtemp())
(folder / "text.txt").write_text("to be or not to be that is the question\n" * 100)

job = mapreduce(Lengths(), folder / "text.txt", folder / "out", reducers=1)
result = slotwise.run([job], slots=2)
print("failed:", result.failed)
print((folder / "out" / "part-r-00000").read_text(), end="")
