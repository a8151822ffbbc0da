"""The public contract: what users write and read is as the text files of `public_names` say.

    python.txt    names that are imported, with signatures; documented imports; joblib backends
    commands.txt  commands with options; accepted values; extras; environment variables
    workload.txt  keys of the workload file, of the options of the gate, of Dask annotations
    log.txt       keys of each kind of line of a log; tables of the history
    json.txt      keys of what commands print with `--json`, and of the status of the gate

They are found by introspection. After a change that is meant, renew them, from the root of the
project, and read the difference:

    .venv/bin/python tests/test_public_names.py

`tests/data` has logs, a history and workload files that users may have. They are never written
again: later releases have to read them as they are.

Not public, and free to change: paths of modules inside the package, but for `slotwise`,
`slotwise.task`, `slotwise.dask`, `slotwise.integrations.joblib` and those that a document
imports (the first part of python.txt); names that begin with an underscore; the names of
classes that nobody imports, though not their members if a public function returns them; the
wording of messages, help and reports; messages between processes; files in the folders of
running jobs; environment variables marked as not in the documents.
"""

from __future__ import annotations

import difflib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

import slotwise
from public_names import contract
from public_names.documented import documented_imports
from slotwise.cli.main import app
from slotwise.core.log import RULES

LOGS = sorted(contract.DATA.glob("*.jsonl"))
RENEW = "if this is meant, renew the text: .venv/bin/python tests/test_public_names.py"
TIMEOUT_SECONDS = 60


@pytest.fixture
def data() -> Iterator[Path]:
    """The stored files, copied into the current folder."""
    with contract.in_data() as folder:
        yield folder


@pytest.mark.parametrize("name", contract.sections())
def test_the_contract_is_as_written(name: str) -> None:
    """Names, options, keys and their types are those of the text file."""
    written = (contract.HERE / name).read_text(encoding="utf-8").splitlines()
    found = list(contract.sections()[name]())
    difference = difflib.unified_diff(written, found, name, "found", lineterm="", n=2)
    assert written == found, "\n".join([RENEW, *difference])


@pytest.mark.parametrize(
    "line", (contract.HERE / "earlier_imports.txt").read_text().splitlines()[1:]
)
def test_imports_that_earlier_documents_showed_work(line: str) -> None:
    """Each name is the one at its present path, not a copy."""
    module, names = line.split(": ")
    found = import_module(module)
    assert found is sys.modules[found.__name__]
    assert all(hasattr(found, name) for name in names.split(", "))


@pytest.mark.parametrize(("module", "names"), sorted(documented_imports().items()))
def test_documented_imports_work(module: str, names: set[str]) -> None:
    """Each import statement that a document shows can be executed."""
    exec(
        f"from {module} import {', '.join(sorted(names))}" if names else f"import {module}", {}
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("simulate small.yaml", 0),
        ("replay queued.jsonl", 0),
        ("replay changed.jsonl", 1),
        ("run broken.yaml --slots 1", 1),
        ("simulate missing.yaml", 2),
        ("simulate small.yaml --noise -1", 2),
        ("simulate small.yaml --scheduler unknown", 2),
    ],
)
def test_exit_codes(words: str, code: int, data: Path) -> None:
    """0: done; 1: a job failed or a decision differs; 2: bad input."""
    assert CliRunner().invoke(app, words.split()).exit_code == code


def test_an_interrupted_command_exits_with_130(data: Path) -> None:
    """Also while it reads. More than a pipe holds is written, so by then it has begun.

    Python notices a signal between two reads only when the line ends.
    """
    os.mkfifo("endless.jsonl")
    words = [sys.executable, "-m", "slotwise", "replay", "endless.jsonl"]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as command:
        try:
            with open("endless.jsonl", "wb+", buffering=0) as pipe:
                pipe.write(b" " * 1_000_000)
                command.send_signal(signal.SIGINT)
                pipe.write(b"\n")
                assert command.wait(TIMEOUT_SECONDS) == 130
        finally:
            command.kill()


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_stored_logs_are_read_and_replayed(log: Path) -> None:
    """The decisions are the same, unless the rules have changed since."""
    read = slotwise.read_log(log)
    assert len(read.turns) > 1
    replay = slotwise.replay(log)
    assert replay.is_identical or replay.rules != RULES, replay.difference


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_stored_logs_are_reported_and_explained(
    log: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is written, and each job can be explained at the time at which it begins."""
    monkeypatch.setattr("vl_convert.javascript_bundle", str)  # It takes seconds.
    contract.invoke("report", log.name, "-o", "page.html")
    assert Path("page.html").stat().st_size > 10_000
    contract.invoke("explain", log.name)
    jobs = [
        event.job
        for turn in slotwise.read_log(log).turns
        for event in turn.events
        if hasattr(event, "job") and isinstance(event.job, slotwise.Job)
    ]
    assert len(jobs) >= 2
    for job in jobs:
        explained = contract.invoke(
            "explain", log.name, "--job", job.id, "--at", str(job.arrival)
        )
        assert job.id in explained


def test_a_stored_history_is_read_and_used(data: Path) -> None:
    """It lists the measured program, and simulations take it."""
    assert "wordcount" in contract.invoke("history", "history.db")
    contract.invoke("simulate", "small.yaml", "--history", "history.db")


@pytest.mark.parametrize("name", ["many.yaml", "small.yaml", "tiny.yaml", "flow.yaml"])
def test_stored_workload_files_are_read(name: str, data: Path) -> None:
    """Jobs that their users named."""
    workload = slotwise.read_workload(name)
    assert workload.jobs
    assert all(job.id.startswith("x-") for job in workload.jobs)


def renew() -> None:
    """Write the text files again."""
    for name, text in contract.sections().items():
        (contract.HERE / name).write_text("\n".join(text()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    renew()
