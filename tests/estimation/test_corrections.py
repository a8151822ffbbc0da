"""Corrections: what finished tasks tell of estimates and of stated speeds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotwise.estimation.corrections import corrected
from slotwise.model.job import PhaseId
from slotwise.model.snapshot import Seen

A, B = PhaseId("j", "map"), PhaseId("j", "reduce")


def test_without_observations_nothing_is_corrected() -> None:
    """Speeds stay as stated, and no phase has a factor."""
    found = corrected({}, {"h": 0.5, "g": 2.0})
    assert found.speeds == {"h": 0.5, "g": 2.0}
    assert found.factors == {}


def test_one_task_corrects_an_estimate_that_is_ten_times_off() -> None:
    """One task of 1 s where 10 s were expected: the phase needs a tenth."""
    found = corrected({A: {"h": Seen(10.0, 1.0, 1)}}, {"h": 1.0})
    assert found.factors[A] == pytest.approx(0.1, rel=1e-6)
    assert found.speeds["h"] == pytest.approx(1.0, rel=1e-6)


def test_a_phase_without_observations_is_corrected_like_its_job() -> None:
    """Maps took a fifth of what was expected, so reduces are taken to; other jobs are not."""
    found = corrected({A: {"h": Seen(10.0, 2.0, 2)}}, {"h": 1.0})

    class View:
        def __init__(self, name: PhaseId) -> None:
            self.id = name

        def expected(self, task: int) -> float:
            return 5.0

    assert found.work(View(B), 0) == pytest.approx(1.0)
    assert found.work(View(PhaseId("k", "map")), 0) == 5.0


def test_correct_estimates_are_left_unchanged() -> None:
    """On a host of speed 0.5 a task takes twice its work, as it should."""
    seen = {A: {"fast": Seen(8.0, 8.0, 4), "slow": Seen(4.0, 8.0, 2)}}
    found = corrected(seen, {"fast": 1.0, "slow": 0.5})
    assert found.factors[A] == pytest.approx(1.0)
    assert found.speeds == pytest.approx({"fast": 1.0, "slow": 0.5})


def test_a_slow_host_is_detected() -> None:
    """Both were said to be alike, but one takes four times as long with every phase."""
    seen = {
        phase: {"fast": Seen(100.0, 100.0, 100), "slow": Seen(50.0, 200.0, 50)}
        for phase in (A, B)
    }
    found = corrected(seen, {"fast": 1.0, "slow": 1.0})
    assert found.speeds["fast"] / found.speeds["slow"] == pytest.approx(4.0, rel=0.1)


def test_one_task_does_not_make_a_host_slow() -> None:
    """A stated speed counts as much as one task: half of the logarithm is believed at most."""
    seen = {A: {"h": Seen(10.0, 10.0, 10), "g": Seen(1.0, 4.0, 1)}}
    speed = corrected(seen, {"h": 1.0, "g": 1.0}).speeds["g"]
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
    seen = {
        phase: {
            host: Seen(many, many * factor / speed, many)
            for host, speed in zip(hosts, true, strict=True)
        }
        for phase, factor in zip(phases, factors, strict=True)
    }
    found = corrected(seen, dict.fromkeys(hosts, 1.0))
    for phase, factor in zip(phases, factors, strict=True):
        for host, speed in zip(hosts, true, strict=True):
            seconds = found.factors[phase] / found.speeds[host]
            assert math.isclose(seconds, factor / speed, rel_tol=1e-3)
