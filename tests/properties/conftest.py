"""A fixture that runs the cases of several files."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from properties.test_runs import Case
from slotwise.core.decisions import Locality


@pytest.fixture(scope="session")
def run_case(simulated: Callable[..., object]) -> Callable[[Case], object]:
    """Runs a case on the simulated backend, with checks."""

    def run(case: Case) -> object:
        return simulated(
            case.jobs,
            case.cluster,
            case.pools,
            case.name,
            case.simulation,
            parameters={"slowdown": [case.simulation.slowdown(near) for near in Locality]},
            **case.options,
        )

    return run
