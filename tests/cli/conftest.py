"""The commands, called as a shell would call them, each in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import TextIO

import pytest
from click.testing import Result
from typer.testing import CliRunner

from forked import Forker
from slotwise.cli.main import app

JOBS = """\
slotwise: 1
cluster: {slots: 10}
jobs:
  - {id: small, phases: [{name: map, work: 40, tasks: 8}]}
  - {id: large, weight: 2, phases: [{name: map, work: 400, tasks: 40, slots_min: 2},
     {name: reduce, work: 60, tasks: 6, after: [map], slots_max: 4}]}
"""

Invoke = Callable[..., Result]
RunProcess = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which commands run, with two jobs in jobs.yaml."""
    (tmp_path / "jobs.yaml").write_text(JOBS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def slotwise(
    folder: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> Invoke:
    """Calls a command in this process; returns its exit code, stdout and stderr.

    By default reports are without the library that draws, which takes seconds to make.
    """
    if not pytestconfig.getoption("--slow"):
        monkeypatch.setattr("vl_convert.javascript_bundle", str)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    return invoke


@pytest.fixture
def run_process(request: pytest.FixtureRequest, folder: Path) -> RunProcess:
    """Runs a command as a process in the folder; returns exit code and captured streams.

    A stream is captured unless a file or a descriptor is given for it. `before` is Python code
    to run before the command. With --slow each command starts an interpreter.
    """

    def run(
        *arguments: str,
        stdin: str | Path = os.devnull,
        stdout: TextIO | int | None = None,
        stderr: TextIO | int | None = None,
        before: str = "",
    ) -> subprocess.CompletedProcess[str]:
        with ExitStack() as stack:
            capture = [stack.enter_context(TemporaryFile("w+")) for _ in range(2)]
            streams = [
                stack.enter_context(open(stdin)),
                capture[0] if stdout is None else stdout,
                capture[1] if stderr is None else stderr,
            ]
            if request.config.getoption("--slow"):
                code = f"{before}\nfrom slotwise.__main__ import main\nmain()"
                command = ["-c", code] if before else ["-m", "slotwise"]
                exit_code = subprocess.run(
                    [sys.executable, *command, *arguments],
                    **dict(zip(("stdin", "stdout", "stderr"), streams, strict=True)),
                    check=False,
                ).returncode
            else:
                forker: Forker = request.getfixturevalue("forker")
                numbers = [one if isinstance(one, int) else one.fileno() for one in streams]
                exit_code = forker.start(arguments, folder, numbers, before=before).wait()
            printed = [file.seek(0) or file.read() for file in capture]
        return subprocess.CompletedProcess(arguments, exit_code, *printed)

    return run
