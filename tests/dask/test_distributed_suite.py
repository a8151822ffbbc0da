"""distributed's own tests pass with the gate in every scheduler that they start.

They are not part of this project, nor of releases of distributed. Name a checkout of the
repository dask/distributed, at the tag of the installed release, in the variable
SLOTWISE_DISTRIBUTED_TESTS, and run `scripts/test --slow tests/dask/test_distributed_suite.py`.

A test that fails is repeated. If it fails again it is run without the gate: tests that fail
there, too, say nothing of the gate.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from distributed_exceptions import REASONS
from distributed_suite import RESULTS, provide

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "internals" / "gate.md"
VARIABLE = "SLOTWISE_DISTRIBUTED_TESTS"
TIMEOUT_SECONDS = 3600

SUITES = (
    "tests/test_active_memory_manager.py",
    "tests/test_actor.py",
    "tests/test_as_completed.py",
    "tests/test_cancelled_state.py",
    "tests/test_client.py",
    "tests/test_client_executor.py",
    "tests/test_computations.py",
    "tests/test_dask_collections.py",
    "tests/test_events.py",
    "tests/test_failed_workers.py",
    "tests/test_locks.py",
    "tests/test_publish.py",
    "tests/test_queues.py",
    "tests/test_reschedule.py",
    "tests/test_resources.py",
    "tests/test_scheduler.py",
    "tests/test_semaphore.py",
    "tests/test_spans.py",
    "tests/test_steal.py",
    "tests/test_stress.py",
    "tests/test_variable.py",
    "tests/test_worker.py",
    "tests/test_worker_client.py",
    "tests/test_worker_memory.py",
    "shuffle/tests/test_graph.py",
    "shuffle/tests/test_merge.py",
    "shuffle/tests/test_rechunk.py",
    "shuffle/tests/test_shuffle.py",
)
"""The files of tests that apply."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder with the tests."""
    if not (checkout := os.environ.get(VARIABLE)):
        pytest.skip(f"name a checkout of the repository of distributed in {VARIABLE}")
    provide(Path(checkout), tmp_path)
    return tmp_path


def run(folder: Path, tests: Iterable[str], *, with_gate: bool) -> dict[str, set[str]]:
    """Run tests; their names by what became of them: "passed", "failed", "gated"."""
    (folder / RESULTS).write_text("", encoding="utf-8")
    preload = '["distributed_suite"]' if with_gate else "[]"
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--tb=native", "-p", "distributed_suite"),
            *("-c", "pytest.ini", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"),
            *("-p", "no:xdist", "-o", "faulthandler_timeout=300", *tests),
        ],
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join([str(folder), str(TESTS)]),
            "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": preload,
        },
        cwd=folder,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    found: dict[str, set[str]] = {"passed": set(), "failed": set(), "gated": set()}
    for line in (folder / RESULTS).read_text(encoding="utf-8").splitlines():
        result, test = line.split(" ", 1)
        found[result].add(test)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_the_tests_of_distributed_pass(suite: str, folder: Path) -> None:
    """Those of a file, except the exceptions."""
    found = run(folder, [f"distributed/{suite}"], with_gate=True)
    assert found["gated"], "schedulers have the gate"
    failed = found["failed"]
    if failed:
        failed = run(folder, sorted(failed), with_gate=True)["failed"]
    if failed:
        failed -= run(folder, sorted(failed), with_gate=False)["failed"]
    print(f"{suite}: {len(found['passed'])} passed, {len(found['gated'])} with the gate")
    assert sorted(failed) == []


def test_the_page_lists_the_reasons() -> None:
    """Each reason is in the documentation, with the number of its tests."""
    page = PAGE.read_text(encoding="utf-8")
    rows = [f"| {len(tests)} | {reason} |" for reason, tests in REASONS.items()]
    assert [row for row in rows if row not in page] == []
