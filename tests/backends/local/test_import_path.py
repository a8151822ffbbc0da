"""Where the tasks of a worker find modules."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import cloudpickle

from backends.local.calling import TIMEOUT
from slotwise.backends.local.processes import Processes


def test_the_path_of_the_manager_comes_before_that_of_the_worker(tmp_path: Path) -> None:
    """On another host, what the manager has may lie elsewhere."""
    (tmp_path / "only_here.py").write_text("")
    processes = Processes(1, environment={"PYTHONPATH": str(tmp_path)})
    try:

        def find() -> list[str]:
            import sys

            import only_here  # type: ignore[import-not-found]

            return [sys.path[0], only_here.__file__]

        path = ["/elsewhere", *sys.path]
        processes.learn("find", pickle.dumps((path, "find", cloudpickle.dumps(find))))
        processes.start_pickled(0, "find", pickle.dumps(("find", ())))
        (answer,) = processes.wait(TIMEOUT)
        assert isinstance(answer.value, bytes | bytearray)
        found = pickle.loads(answer.value)
        assert found == ["/elsewhere", os.fspath(tmp_path / "only_here.py")]
    finally:
        processes.close()
