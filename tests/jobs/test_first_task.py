"""The first task of a worker takes what the others take: loading the code is no part of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

from slotwise.jobs.mapreduce.planning import plan_mapreduce

TASK = """\
import pickle, sys
runner, arguments = pickle.loads(sys.stdin.buffer.read())
before = set(sys.modules)
runner(*arguments)
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before}))
"""
"""Does a task in a new process, and tells what it had to import."""


@pytest.mark.parametrize("program", ["wordcount", "sort", "grep"])
def test_a_runner_brings_its_code(program: str, tmp_path: Path) -> None:
    """When its runner is unpickled, a task imports nothing more of slotwise, nor numpy."""
    (tmp_path / "in.txt").write_text("some words\n")
    parameters = {"pattern": "w"} if program == "grep" else {}
    made = plan_mapreduce(
        "j", program, "in.txt", "out", parameters=parameters, base_dir=tmp_path, reducers=1
    )
    arguments = made.arguments("map", 0, 1)
    try:
        body = cloudpickle.dumps((made.runner, arguments))
        ran = subprocess.run(
            [sys.executable, "-c", TASK], input=body, capture_output=True, check=True
        )
    finally:
        made.close(succeeded=False)
    assert not {"slotwise", "numpy"} & set(ran.stdout.decode().split())
