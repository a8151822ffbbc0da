"""What a graph states is known by a digest, which is the same in each process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from slotwise.jobs.dataflow.loading import load_flow
from slotwise.jobs.dataflow.stages import derive
from slotwise.jobs.dataflow.stated import Stated, stated

APP = """
from dataclasses import dataclass
import slotwise


@dataclass
class Word:
    text: str


class Words(slotwise.MapReduce):
    def map(self, key, value):
        yield value, 1


def scaled(by):
    return lambda number: number * by


def chosen(words, stop, scale):
    yield from words


flow = slotwise.Dataflow()
words = flow.values([Word("a"), Word("b")], name="words")
found = flow.node(
    chosen, words.file(), parameters={"stop": {"the", "of", "and"}, "scale": scaled(2)}
)
flow.write(found, flow.map_reduce(Words, flow.read("lines.txt")))
"""

PROGRAM = """
from slotwise.jobs.dataflow.loading import load_flow
from slotwise.jobs.dataflow.stages import derive
from slotwise.jobs.dataflow.stated import stated

print(stated(derive(load_flow("app.py:flow").graph())).digest)
"""


def read(folder: Path, app: str = APP) -> Stated:
    """What the flow of an app states."""
    (folder / "app.py").write_text(app)
    return stated(derive(load_flow("app.py:flow", folder).graph(folder)))


def test_the_digest_is_the_same_in_each_process(tmp_path: Path) -> None:
    """Although sets are in another order, and classes and functions of the file are others."""
    (tmp_path / "lines.txt").write_text("a\n")
    digest = read(tmp_path).digest
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        shown = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert shown.stdout.strip() == digest


def test_other_parameters_values_and_input_have_another_digest(tmp_path: Path) -> None:
    """Also what a function in a parameter has taken from around it."""
    (tmp_path / "lines.txt").write_text("a\n")
    changes = [("", ""), ("scaled(2)", "scaled(30)"), ('"of"', '"until"'), ('"b"', '"bbb"')]
    digests = {read(tmp_path, APP.replace(*change)).digest for change in changes}
    (tmp_path / "lines.txt").write_text("a\nb\n")
    assert len(digests | {read(tmp_path).digest}) == len(changes) + 1


def test_the_files_of_functions_are_known(tmp_path: Path) -> None:
    """Also of those in parameters, and not the files of slotwise."""
    (tmp_path / "lines.txt").write_text("a\n")
    files = read(tmp_path).code_files
    assert str(tmp_path / "app.py") in files
    assert not [file for file in files if "slotwise/jobs" in file]
