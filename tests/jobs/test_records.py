"""Records of classes of a script pass through all files and channels of a job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import dataclasses, enum, sys
from pathlib import Path
import slotwise

class Kind(enum.Enum):
    SHORT = 1

@dataclasses.dataclass(slots=True)
class Word:
    text: str
    count: int
    kind: Kind = Kind.SHORT

class Count(slotwise.MapReduce):
    def map(self, key, value):
        for text in value.split():
            yield text, Word(text, 1)

    def reduce(self, key, values):
        yield key, total(values)

def total(words):
    count = 0
    for word in words:
        assert type(word) is Word and word.kind is Kind.SHORT
        count += word.count
    return count

def words(lines):
    for line in lines:
        yield from (Word(text, 1) for text in line.split())

def counted(found):
    yield total(found)

def text(word):
    return word.text

job, flow = None, slotwise.Dataflow()
Path("in.txt").write_text("a b\\n" * 30_000)
if sys.argv[1] == "mapreduce":
    job = slotwise.mapreduce(Count, "in.txt", "out", id="j")
else:
    read = flow.node(words, flow.read("in.txt"))
    by = {"file": lambda: read.file(by=text, sort=True), "shm": read.shm, "tcp": read.tcp}
    flow.write(flow.node(counted, by[sys.argv[1]](), copies=1))
    job = flow.job("j", "out", memory_bytes=1 << 20)
slotwise.run([job], slots=2)
for file in sorted(Path("out").glob("part*")):
    print(file.read_text().replace("\\t", " "), end="")
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("mapreduce", "a 30000\nb 30000\n"),
        ("file", "60000\n"),
        ("shm", "60000\n"),
        ("tcp", "60000\n"),
    ],
)
def test_records_are_of_the_classes_of_the_script(
    path: str, expected: str, tmp_path: Path
) -> None:
    """Through shuffles, spilled sorts and channels."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script, path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (sorted(done.stdout.splitlines()), done.stderr) == (expected.split("\n")[:-1], "")
