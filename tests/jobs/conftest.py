"""A driver that runs a job in this process, as the local backend would."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import cloudpickle
import pytest

from slotwise.jobs import Execution


@pytest.fixture(scope="session")
def drive() -> Callable[[Execution], None]:
    """Runs all tasks of a job in the order of its phases, then commits; aborts on an error."""

    def run(execution: Execution) -> None:
        runner = pickle.loads(cloudpickle.dumps(execution.runner))
        succeeded = False
        try:
            for phase in execution.job.topological:
                for task in range(phase.tasks.count):
                    arguments = pickle.loads(
                        pickle.dumps(execution.arguments(phase.name, task, 0))
                    )
                    result = pickle.loads(pickle.dumps(runner(*arguments)))
                    execution.finished(phase.name, task, 0, result)
            succeeded = True
        finally:
            execution.close(succeeded)

    return run


@pytest.fixture
def output_of(drive: Callable[[Execution], None]) -> Callable[[Execution], bytes]:
    """Runs a job and gives its parts, one after another."""

    def run(execution: Execution) -> bytes:
        drive(execution)
        parts = sorted(Path(execution.output).glob("part-*"))
        return b"".join(part.read_bytes() for part in parts)

    return run
