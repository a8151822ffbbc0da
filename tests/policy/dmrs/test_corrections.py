"""Corrections: what finished tasks tell of estimates and of stated speeds."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotwise.core.host_state import TaskTimings
from slotwise.core.job import PhaseId
from slotwise.policy.dmrs.corrections import corrected

A, B = PhaseId("j", "map"), PhaseId("j", "reduce")

CrossKindLimits = dict[PhaseId, dict[str, tuple[float, float, int]]]
"""By phase and host: the expected work, the seconds and the number of finished tasks."""


def seen(totals: CrossKindLimits) -> TaskTimings:
    """What a state would show of these totals."""
    hosts = sorted({host for by_host in totals.values() for host in by_host})
    tasks, ratios = np.zeros((2, len(totals), len(hosts)))
    for row, by_host in enumerate(totals.values()):
        for host, (expected, seconds, count) in by_host.items():
            tasks[row, hosts.index(host)] = count
            ratios[row, hosts.index(host)] = math.log(seconds / expected)
    return TaskTimings(list(totals), hosts, tasks, ratios)


def test_without_observations_nothing_is_corrected() -> None:
    """Speeds stay as stated, and no phase has a factor."""
    found = corrected(seen({}), {"h": 0.5, "g": 2.0})
    assert found.speeds == {"h": 0.5, "g": 2.0}
    assert found.factors == {}


def test_one_task_corrects_an_estimate_that_is_ten_times_off() -> None:
    """One task of 1 s where 10 s were expected: the phase needs a tenth."""
    found = corrected(seen({A: {"h": (10.0, 1.0, 1)}}), {"h": 1.0})
    assert found.factors[A] == pytest.approx(0.1, rel=1e-6)
    assert found.speeds["h"] == pytest.approx(1.0, rel=1e-6)


def test_a_phase_without_observations_is_corrected_like_its_job() -> None:
    """Maps took a fifth of what was expected, so reduces are taken to; other jobs are not."""
    found = corrected(seen({A: {"h": (10.0, 2.0, 2)}}), {"h": 1.0})

    def view(name: PhaseId) -> Any:
        return SimpleNamespace(id=name, work=SimpleNamespace(expected=lambda task: 5.0))

    assert found.work(view(B), 0) == pytest.approx(1.0)
    assert found.work(view(PhaseId("k", "map")), 0) == 5.0


def test_correct_estimates_are_left_unchanged() -> None:
    """On a host of speed 0.5 a task takes twice its work, as it should."""
    totals: CrossKindLimits = {A: {"fast": (8.0, 8.0, 4), "slow": (4.0, 8.0, 2)}}
    found = corrected(seen(totals), {"fast": 1.0, "slow": 0.5})
    assert found.factors[A] == pytest.approx(1.0)
    assert found.speeds == pytest.approx({"fast": 1.0, "slow": 0.5})


def test_a_slow_host_is_detected() -> None:
    """Both were said to be alike, but one takes four times as long with every phase."""
    totals: CrossKindLimits = {
        phase: {"fast": (100.0, 100.0, 100), "slow": (50.0, 200.0, 50)} for phase in (A, B)
    }
    found = corrected(seen(totals), {"fast": 1.0, "slow": 1.0})
    assert found.speeds["fast"] / found.speeds["slow"] == pytest.approx(4.0, rel=0.1)


def test_one_task_does_not_make_a_host_slow() -> None:
    """A stated speed counts as much as one task: half of the logarithm is believed at most."""
    totals: CrossKindLimits = {A: {"h": (10.0, 10.0, 10), "g": (1.0, 4.0, 1)}}
    speed = corrected(seen(totals), {"h": 1.0, "g": 1.0}).speeds["g"]
    assert 0.45 < speed < 1.0


@given(
    st.lists(st.floats(0.1, 10.0), min_size=2, max_size=5),
    st.lists(st.floats(0.1, 10.0), min_size=2, max_size=5),
)
def test_with_many_tasks_the_truth_is_found(true: list[float], factors: list[float]) -> None:
    """Whatever hosts do and estimates are wrong by: products of both are as seen, nearly."""
    phases = [PhaseId("j", str(number)) for number in range(len(factors))]
    hosts = [str(number) for number in range(len(true))]
    many = 100_000
    totals: CrossKindLimits = {
        phase: {
            host: (many, many * factor / speed, many)
            for host, speed in zip(hosts, true, strict=True)
        }
        for phase, factor in zip(phases, factors, strict=True)
    }
    found = corrected(seen(totals), dict.fromkeys(hosts, 1.0))
    for phase, factor in zip(phases, factors, strict=True):
        for host, speed in zip(hosts, true, strict=True):
            seconds = found.factors[phase] / found.speeds[host]
            assert math.isclose(seconds, factor / speed, rel_tol=1e-3)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 6))
def test_the_corrections_are_least_squares(draw: int, phases: int, hosts: int) -> None:
    """numpy finds the same factors and speeds from one equation per phase and host."""
    rng = np.random.default_rng(draw)
    tasks = rng.integers(0, 5, (phases, hosts)).astype(float)
    ratios = rng.normal(0, 1, (phases, hosts)) * (tasks > 0)
    stated = {str(number): float(rng.uniform(0.2, 5)) for number in range(hosts)}
    names = [PhaseId("j", str(number)) for number in range(phases)]
    found = corrected(TaskTimings(names, list(stated), tasks, ratios), stated)

    speeds = np.array(list(stated.values()))
    rows, right = [], []
    for phase, host in np.ndindex(phases, hosts):
        root = math.sqrt(tasks[phase, host])
        rows.append(root * np.concatenate([np.eye(phases)[phase], np.eye(hosts)[host]]))
        right.append(root * (ratios[phase, host] + math.log(speeds[host])))
    for host in range(hosts):  # A stated speed is worth one task.
        rows.append(np.concatenate([np.zeros(phases), np.eye(hosts)[host]]))
        right.append(0.0)
    best, *_ = np.linalg.lstsq(np.array(rows), np.array(right), rcond=None)
    assert list(found.factors.values()) == pytest.approx(np.exp(best[:phases]))
    assert list(found.speeds.values()) == pytest.approx(speeds / np.exp(best[phases:]))
