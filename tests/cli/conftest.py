"""The commands, called as a shell would call them, each in an empty folder."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import TextIO

import pytest
from click.testing import Result
from typer.testing import CliRunner

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

FORKING = """
import json, os, socket, sys
from slotwise import __main__ as command
from slotwise.cli import main  # The modules that all commands need.
import vl_convert

vl_convert.javascript_bundle = lambda: 100_000 * " "  # The real one takes seconds to make.

channel = socket.socket(fileno=int(sys.argv[1]))
while True:
    request, streams, *_ = socket.recv_fds(channel, 1 << 16, 3)
    if not request:
        break
    if os.fork() == 0:
        channel.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        order = json.loads(request)
        os.chdir(order["folder"])
        sys.argv = ["slotwise", *order["arguments"]]
        exec(order["before"])
        command.main()
        sys.exit()
    for stream in streams:
        os.close(stream)
    channel.send(str(os.waitstatus_to_exitcode(os.wait()[1])).encode())
"""
"""Forks a process for each command, so that the modules are imported only once."""


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


@pytest.fixture(scope="session")
def forking() -> Iterator[socket.socket]:
    """The channel to a process that forks commands."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-c", FORKING, str(theirs.fileno())]
        server = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    yield ours
    ours.close()
    server.wait()


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
                channel = request.getfixturevalue("forking")
                order = {"folder": str(folder), "arguments": arguments, "before": before}
                numbers = [one if isinstance(one, int) else one.fileno() for one in streams]
                socket.send_fds(channel, [json.dumps(order).encode()], numbers)
                exit_code = int(channel.recv(16))
            printed = [file.seek(0) or file.read() for file in capture]
        return subprocess.CompletedProcess(arguments, exit_code, *printed)

    return run
