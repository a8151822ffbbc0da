"""CPython's own tests of executors and futures, run on the executor of a session.

It runs as a script, in a process of its own, because these tests change the process: they reap
children and leave modules behind. Arguments: the folder of the tests, a folder for a package,
and the name of a class. It prints which tests ran, were skipped and failed, as JSON.
"""

from __future__ import annotations

import gc
import importlib
import json
import multiprocessing
import os
import pkgutil
import sys
import unittest
import warnings
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import process as futures_of_processes
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, cast

from slotwise import Session
from slotwise.backends.local.call_stream import RemoteTraceback
from slotwise.sessions.executor import SessionExecutor
from slotwise.sessions.futures import Future

SUITE = "test.test_concurrent_futures"

CLASSES = {
    "WaitTests": "",
    "AsCompletedTests": "",
    "ExecutorShutdownTest": "",
    "ExecutorTest": "",
    "ProcessPoolExecutorTest": "ExecutorTest",
    "ExecutorDeadlockTest": "",
    "FutureTests": "",
}
"""The classes of tests that apply, and the class whose inherited tests each leaves out."""


class NoSession:
    """What a future asks of its session, for futures that belong to none."""

    cells = None

    def stop_cancelled(self, future: Future[Any]) -> None:
        """Do nothing: no call runs."""

    def explain(self, job: str) -> Any:
        """No job exists."""
        raise AssertionError

    def ask(self, question: Any) -> Any:
        """No loop runs."""
        return question()

    def shown_job(self, job: str) -> None:
        """No job exists."""

    def progress(self, job: str, task: int) -> None:
        """No call runs."""

    def call_back(self, calls: Callable[[], None]) -> None:
        """Make the callbacks here."""
        calls()


class OnSession:
    """Takes the place of the mixin that makes a ProcessPoolExecutor for each test."""

    worker_count = 5
    sessions: ClassVar[list[Session]] = []

    @staticmethod
    def executor_type(max_workers: int, mp_context: object = None) -> SessionExecutor:
        """The executor of a session that has so many slots."""
        with warnings.catch_warnings():  # Other tests have sessions, too.
            warnings.simplefilter("ignore")
            session = Session(max_workers)
        OnSession.sessions.append(session)
        return session.executor()

    def setUp(self) -> None:
        """Make the executor of a test."""
        super().setUp()  # type: ignore[misc]
        self.executor = self.executor_type(self.worker_count)

    def tearDown(self) -> None:
        """End the sessions of a test."""
        self.executor.shutdown(wait=True)
        del self.executor
        while self.sessions:
            self.sessions.pop().close()
        gc.collect()  # Else the tests of Python wait for the threads, which they keep alive.
        super().tearDown()  # type: ignore[misc]

    def get_context(self) -> Any:
        """The context in which tests start managers and make semaphores."""
        return multiprocessing.get_context("spawn")


def __getattr__(name: str) -> type[unittest.TestCase]:
    """The tests of a class, on sessions. Workers find the class by this name, too."""
    if name not in CLASSES:
        raise AttributeError(name)
    found = {key: value for module in modules() for key, value in vars(module).items()}
    if name == "FutureTests":
        return cast(type[unittest.TestCase], found[name])
    repeated = vars(found[CLASSES[name]]) if CLASSES[name] else {}
    names = [
        test for test in repeated if test.startswith("test") and test not in vars(found[name])
    ]
    members = {**dict.fromkeys(names), "__module__": __name__}
    return type(name, (OnSession, found[name], found["BaseTestCase"]), members)


def provide(folder: str, package: Path) -> None:
    """Make the tests importable, here, in workers and in the scripts that tests start."""
    import test

    (package / "test").mkdir()
    paths = [folder, *test.__path__]  # `test.support` may be elsewhere than the tests.
    (package / "test" / "__init__.py").write_text(f"__path__ = {paths!r}\n")
    del sys.modules["test"]
    added = [str(package), str(Path(__file__).parent)]
    sys.path[:0] = added
    os.environ["PYTHONPATH"] = os.pathsep.join(added)


def modules() -> list[ModuleType]:
    """The modules of the tests: one file or, from Python 3.12 on, a package."""
    suite = importlib.import_module(SUITE)
    inner = pkgutil.iter_modules(getattr(suite, "__path__", ()))
    return [suite, *(importlib.import_module(f"{SUITE}.{found.name}") for found in inner)]


def adapt() -> None:
    """Let the tests use futures of sessions, and let their scripts use executors of sessions.

    The cause of an exception has another type than that of a ProcessPoolExecutor.
    """
    futures_of_processes._RemoteTraceback = RemoteTraceback  # type: ignore[attr-defined]
    made: dict[str, Future[Any]] = {}
    for module in modules():
        names: Any = module
        if hasattr(module, "Future"):
            names.Future = lambda: Future(NoSession())
        if hasattr(module, "assert_python_ok"):
            names.assert_python_ok = with_executor_of_session(names.assert_python_ok)
        for name, value in list(vars(module).items()):
            if isinstance(value, futures.Future):
                future: Any = made.setdefault(name, Future(NoSession()))
                for part in ("_state", "_result", "_exception"):
                    setattr(future, part, getattr(value, part))
                setattr(module, name, future)


def with_executor_of_session(run_script: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs a script as `run_script` does, with the executor of a session."""

    def run(option: str, script: str) -> Any:
        theirs = "from concurrent.futures import executor_type"
        ours = (
            "from cpython_executors import OnSession; executor_type = OnSession.executor_type"
        )
        assert theirs in script
        return run_script(
            option, script.replace(theirs, ours), PYTHONPATH=os.environ["PYTHONPATH"]
        )

    return run


def main(name: str) -> None:
    """Run the tests of a class, and print what became of them."""
    adapt()
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(__getattr__(name))
    ran = [cast(unittest.TestCase, test).id() for test in tests]
    result = unittest.TextTestRunner(verbosity=2).run(tests)
    outcomes = {
        "ran": ran,
        "skipped": [test.id() for test, _ in result.skipped],
        "failed": [test.id() for test, _ in [*result.failures, *result.errors]],
    }
    print(
        json.dumps(
            {kind: [one.split(".")[-1] for one in ids] for kind, ids in outcomes.items()}
        )
    )


if __name__ == "__main__":
    provide(sys.argv[1], Path(sys.argv[2]))
    importlib.import_module("cpython_executors").main(sys.argv[3])
