"""The commands, called as a shell would call them, in a folder of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which commands run, with jobs.yaml of two jobs in it."""
    (tmp_path / "jobs.yaml").write_text(JOBS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def slotwise(folder: Path) -> Invoke:
    """Calls a command; its exit code, stdout and stderr."""

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    return invoke
