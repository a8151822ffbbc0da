"""CPython's own tests of executors and futures pass on the executor of a session.

They are taken from an installed `test` package and are not part of this project. Where Python
comes without them, install the package of the system (libpython3.11-testsuite in Debian), or
name the folder that holds `test_concurrent_futures` in the variable SLOTWISE_CPYTHON_TESTS.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import test

SCRIPT = Path(__file__).parent / "cpython_executors.py"
PAGE = Path(__file__).parents[2] / "docs" / "internals" / "sessions.md"
VARIABLE = "SLOTWISE_CPYTHON_TESTS"
TIMEOUT_SECONDS = 110

SYSTEM = "/usr/lib/python{}.{}/test".format(*sys.version_info)
FOLDERS = [os.environ.get(VARIABLE, ""), *test.__path__, SYSTEM]
SUITES = ("test_concurrent_futures.py", "test_concurrent_futures/__init__.py")

PRIVATE = "reads private tables of processes and threads; the workers belong to the session"
PER_CHILD = "a session has no `max_tasks_per_child`"
OWN_ERROR = "the call fails with what unpickling raised, and the executor is not broken"

REPR = "`repr` names the job and its state, and no address"

EXCEPTIONS = {
    "test_cancel": "`cancel` also stops a call that runs, and wakes those who wait at once",
    "test_error_at_task_unpickle": OWN_ERROR,
    "test_error_during_result_unpickle_in_result_handler": OWN_ERROR,
    "test_exit_at_task_unpickle": OWN_ERROR,
    "test_exit_during_result_unpickle_in_result_handler": OWN_ERROR,
    "test_idle_process_reuse_multiple": PRIVATE,
    "test_idle_process_reuse_one": PRIVATE,
    "test_killed_child": PRIVATE,
    "test_max_tasks_early_shutdown": PER_CHILD,
    "test_max_tasks_per_child": PER_CHILD,
    "test_max_tasks_per_child_defaults_to_spawn_context": PER_CHILD,
    "test_max_workers_negative": "a session has `slots`, with a message of its own",
    "test_multiple_set_exception": REPR,
    "test_multiple_set_result": REPR,
    "test_repr": REPR,
    "test_saturation": PRIVATE,
    "test_shutdown_deadlock_pickle": PRIVATE,
}
"""Why tests fail here, by name."""

UNDECIDED = {
    "test_cancel_futures": "expects that a call has begun when `shutdown` cancels the others",
}
"""Why tests may pass or fail, by name."""

NOT_APPLICABLE = {
    "ThreadPool": "threads",
    "Initializer": "an executor of a session has no `initializer`",
    "ProcessPoolShutdownTest": PRIVATE,
}
"""Why classes of tests are not run, by a part of their name."""


def outcomes(name: str, package: Path) -> dict[str, list[str]]:
    """Which tests of a class ran, were skipped and failed."""
    found = [
        folder for folder in FOLDERS if any((Path(folder) / suite).exists() for suite in SUITES)
    ]
    if not found:
        version = "{}.{}".format(*sys.version_info)
        pytest.skip(
            f"Python {version} is installed without its tests of executors; install"
            f" libpython{version}-testsuite, or name their folder in {VARIABLE}"
        )
    done = subprocess.run(
        [sys.executable, SCRIPT, found[0], package, name],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=TIMEOUT_SECONDS,
    )
    read: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return read


slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("ExecutorTest", 8),
        ("FutureTests", 20),
        pytest.param("WaitTests", 8, marks=slow),
        pytest.param("AsCompletedTests", 5, marks=slow),
        pytest.param("ExecutorShutdownTest", 6, marks=slow),
        pytest.param("ProcessPoolExecutorTest", 10, marks=slow),
        pytest.param("ExecutorDeadlockTest", 14, marks=slow),
    ],
)
def test_the_tests_of_cpython_pass(name: str, count: int, tmp_path: Path) -> None:
    """At least as many run as in Python 3.11, and those that fail are the exceptions."""
    found = outcomes(name, tmp_path)
    assert len(found["ran"]) >= count
    assert sorted(set(found["failed"]) - set(UNDECIDED)) == sorted(
        set(found["ran"]) & set(EXCEPTIONS)
    )


def test_the_page_lists_the_exceptions() -> None:
    """Each exception is in the documentation, with the same reason."""
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    listed = EXCEPTIONS | UNDECIDED
    assert [test for test, why in listed.items() if f"`{test}` | {why}" not in page] == []
