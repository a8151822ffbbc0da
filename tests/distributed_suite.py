"""The tests of distributed with the gate in every scheduler that they start.

A plugin of pytest, and a preload of Dask's schedulers. A test fails if the gate that it uses
has an error, or remembers keys that Dask has forgotten.

The tests are not part of releases of distributed. `provide` makes a folder that holds the
installed package and, from a checkout of its repository, the tests.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distributed_exceptions import EXCEPTIONS
from slotwise.dask import Gate
from slotwise.dask.holding import HELD
from slotwise.dask.options import GateOptions

NOTES = "SLOTWISE_GATE_NOTES"
"""The variable that names the file in which gates note that they begin, and their errors."""

RESULTS = "results.txt"
"""The file, in the folder of the tests, with what became of each test."""

LIMIT_SECONDS = 120
"""The longest time of a test."""


def provide(checkout: Path, folder: Path) -> None:
    """Copy the installed package, and to it the tests of a checkout with their options."""
    spec = importlib.util.find_spec("distributed")
    assert spec is not None
    assert spec.origin is not None
    shutil.copytree(Path(spec.origin).parent, folder / "distributed")
    for tests in checkout.glob("distributed/**/tests"):
        shutil.copytree(tests, folder / tests.relative_to(checkout), dirs_exist_ok=True)
    for name in ("conftest.py", "distributed/pytest_resourceleaks.py"):
        shutil.copy(checkout / name, folder / name)
    theirs = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    options = theirs["tool"]["pytest"]["ini_options"]
    markers = [*options["markers"], "flaky: may fail", "timeout: the longest time"]
    lines = ["[pytest]", "markers =", *(f"    {one}" for one in markers)]
    lines += ["filterwarnings =", *(f"    {one}" for one in options["filterwarnings"])]
    (folder / "pytest.ini").write_text("\n".join(lines) + "\n", encoding="utf-8")


def note(text: str) -> None:
    """Tell the process of the tests."""
    with open(os.environ[NOTES], "a", encoding="utf-8") as file:
        file.write(text + "\n")


class Errors(logging.Handler):
    """Notes the errors that gates log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Note an error."""
        trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
        note(f"error {record.getMessage()} {trace}")


class CheckedGate(Gate):
    """A gate that checks what it remembers when its scheduler closes."""

    async def start(self, scheduler: Any) -> None:
        """Begin."""
        note("begins")
        await super().start(scheduler)

    async def close(self) -> None:
        """Check, and end."""
        if not self.is_open:
            try:
                self._check()
            except Exception as error:
                note(f"error {type(error).__name__} {error}")
        await super().close()

    def _check(self) -> None:
        """All that is remembered is a task of Dask."""
        tasks = self._scheduler.tasks
        self._state.check()
        for key in self._holding:
            assert HELD in tasks[key].resource_restrictions, f"{key!r} is not held"
        if not self._is_awake:
            known = self._computations.tasks
            left = [key for key, task in known.items() if task.status != "done"]
            assert set(left) <= set(tasks), "keys are remembered that Dask has forgotten"
            running = [key for key, task in known.items() if task.status == "running"]
            assert len(running) == self._computations.running, "tasks that run are miscounted"


def dask_setup(scheduler: Any) -> None:
    """Begin with a scheduler."""
    logger = logging.getLogger("slotwise.dask")
    if not any(isinstance(one, Errors) for one in logger.handlers):
        logger.addHandler(Errors(logging.ERROR))
    options = GateOptions(scheduler=os.environ.get("SLOTWISE_GATE_SCHEDULER", "fair"))
    scheduler.add_plugin(CheckedGate(options), name=Gate.name)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the file of the notes of this process."""
    os.environ[NOTES] = str(config.rootpath / f"notes-{os.getpid()}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the exceptions: most of them wait for half a minute before they fail."""
    items[:] = [
        item
        for item in items
        if not EXCEPTIONS & {name(item.nodeid), name(item.nodeid).split("[")[0]}
    ]


def name(test: str) -> str:
    """The name of a test as in the list of exceptions."""
    return test.removeprefix("distributed/")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """End a test that takes too long."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError(f"the test takes more than {LIMIT_SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT_SECONDS)
    try:
        return (yield)
    finally:
        signal.alarm(0)


@pytest.fixture(autouse=True)
def _gates(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail if a gate of the test has an error; note how many there were."""
    notes = Path(os.environ[NOTES])
    notes.write_text("", encoding="utf-8")
    yield
    text = notes.read_text(encoding="utf-8")
    request.node.user_properties.append(("gates", text.count("begins\n")))
    assert "error " not in text, text


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Append to the file `RESULTS` that a test passed or failed, or how many gates it had."""
    gates = dict(report.user_properties).get("gates", 0)
    for result, is_so in (
        ("failed", report.failed),
        ("passed", report.when == "call" and report.passed),
        ("gated", report.when == "teardown" and gates > 0),
    ):
        if is_so:
            with open(Path(os.environ[NOTES]).parent / RESULTS, "a", encoding="utf-8") as file:
                file.write(f"{result} {report.nodeid}\n")
