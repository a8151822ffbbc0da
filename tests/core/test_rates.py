"""Rates and speeds from finished tasks: exact where tasks agree, robust where they do not."""

from __future__ import annotations

from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotwise.core.cluster import Cluster, Host
from slotwise.core.job import Job, Observation, Phase, Tasks
from slotwise.core.rates import estimate_rates

positive = st.floats(1e-3, 1e3)


def seen(
    seconds: float, size: int = 100, host: str = "h", phase: str = "map", speed: float = 1.0
) -> Observation:
    """One finished task of a word count."""
    return Observation("wc", phase, size, host, speed, seconds)


def test_the_rate_is_the_median() -> None:
    """Seconds for each byte; half of what was seen is within the spread."""
    rates = estimate_rates([seen(1.0), seen(2.0), seen(4.0), seen(8.0), seen(3.2)])
    rate = rates.by_phase["wc", "map"]
    assert rate.seconds_per_byte == pytest.approx(0.032)
    assert rate.count == 5
    assert rate.spread == pytest.approx(3.2 / 2 - 1)


def test_large_tasks_weigh_more_than_small_ones() -> None:
    """Small tasks mostly start and end: half of the bytes count, not half of the tasks."""
    rates = estimate_rates([seen(10.0, 1000), *[seen(1.0, 10)] * 50])
    assert rates.by_phase["wc", "map"].seconds_per_byte == pytest.approx(0.01)
    assert rates.by_phase["wc", "map"].spread == pytest.approx(0, abs=1e-9)


@given(
    st.dictionaries(st.sampled_from("abcd"), positive, min_size=1),
    st.dictionaries(st.sampled_from(["map", "reduce"]), positive, min_size=1),
    st.integers(1, 5),
)
def test_true_rates_and_speeds_are_found(
    speeds: dict[str, float], paces: dict[str, float], times: int
) -> None:
    """Where every task takes bytes x rate / speed, estimates give exactly these seconds."""
    tasks = [
        seen(size * pace / speed, size, host, phase)
        for host, speed in speeds.items()
        for phase, pace in paces.items()
        for size in range(1, times + 1)
    ]
    rates = estimate_rates(tasks)
    found = {one.host: one for one in rates.speeds}
    for task in tasks:
        rate = rates.by_phase["wc", task.phase]
        assert task.bytes * rate.seconds_per_byte / found[task.host].speed == pytest.approx(
            task.seconds
        )
        assert rate.spread == pytest.approx(0, abs=1e-6)
    for one, other in zip(sorted(speeds), sorted(speeds)[1:], strict=False):
        assert found[one].speed / found[other].speed == pytest.approx(
            speeds[one] / speeds[other]
        )


@given(st.lists(positive, min_size=1, max_size=9), positive, st.randoms())
def test_a_wrong_minority_does_not_bias_the_rate(
    wrong: list[float], factor: float, rng: object
) -> None:
    """Of 2n + 1 tasks n may have taken whatever time: the rate is that of the others."""
    tasks = [seen(factor) for _ in range(len(wrong) + 1)] + [seen(value) for value in wrong]
    rng.shuffle(tasks)  # type: ignore[attr-defined]
    found = estimate_rates(tasks).by_phase["wc", "map"].seconds_per_byte
    assert found == pytest.approx(factor / 100)


def test_the_stated_speed_of_a_slow_host_is_used() -> None:
    """Where what is stated is true, speeds are as stated, and rates are those at speed 1."""
    rates = estimate_rates(
        [seen(4.0, speed=0.5, host="slow")] * 3 + [seen(2.0, host="plain")] * 2
    )
    assert rates.by_phase["wc", "map"].seconds_per_byte == pytest.approx(0.02)
    assert {one.host: one.speed for one in rates.speeds} == pytest.approx(
        {"slow": 0.5, "plain": 1.0}
    )


def test_tasks_at_the_stated_speed_confirm_it() -> None:
    """Only ratios of speeds are seen: the median task is held to be on a host as stated."""
    rates = estimate_rates([seen(2.0, host="a")] * 5 + [seen(8.0, host="b")] * 2)
    assert {one.host: one.speed for one in rates.speeds} == pytest.approx({"a": 1, "b": 0.25})
    assert rates.by_phase["wc", "map"].seconds_per_byte == pytest.approx(0.02)


def test_hosts_that_share_no_phase_are_not_compared() -> None:
    """A host that ran only other programs keeps its stated speed until they share one."""
    apart = [seen(1.0, host="a", phase="map"), seen(9.0, host="b", phase="reduce")]
    assert [one.speed for one in estimate_rates(apart).speeds] == pytest.approx([1, 1])
    bridge = [seen(1.0, host="c", phase="map"), seen(3.0, host="c", phase="reduce")]
    speed = {one.host: one.speed for one in estimate_rates(apart + bridge).speeds}
    assert speed["a"] / speed["c"] == pytest.approx(1)
    assert speed["c"] / speed["b"] == pytest.approx(3)


@given(st.lists(positive, min_size=2, max_size=30))
def test_half_of_the_tasks_are_within_the_spread(times: list[float]) -> None:
    """Counted one by one, and no smaller spread would hold half of them."""
    rate = estimate_rates([seen(value) for value in times]).by_phase["wc", "map"]
    off = [exp(abs(log(value / 100 / rate.seconds_per_byte))) - 1 for value in times]
    close = 1e-9 * (1 + rate.spread)
    assert 2 * sum(value <= rate.spread + close for value in off) >= len(off)
    assert 2 * sum(value < rate.spread - close for value in off) <= len(off)


def test_observations_without_information_are_left_out() -> None:
    """Tasks without bytes or of no time have no rate; without any, nothing is known."""
    assert estimate_rates([]).by_phase == {}
    assert estimate_rates([seen(1.0, 0), seen(0.0, 5)]).by_phase == {}
    assert estimate_rates([seen(1.0, 0), seen(1.0, 10)]).by_phase["wc", "map"].count == 1


def test_a_job_gets_its_known_work() -> None:
    """Its tasks are estimated by their bytes; phases nobody has seen stay as they were."""
    job = Job("j", (Phase("map", Tasks(2, (7.0, 7.0))), Phase("reduce", Tasks(3, 5.0))))
    rates = estimate_rates([seen(2.0)])
    known = rates.job(job, "wc", {"map": (50, 200), "reduce": 10})
    assert known.by_name["map"].tasks.work == pytest.approx((1.0, 4.0))
    assert known.by_name["reduce"] == job.by_name["reduce"]
    assert rates.job(job, "another", {"map": (50, 200)}) == job


def speeds_of(tasks: list[Observation], **stated: float) -> dict[str, float]:
    """The speeds that schedulers see of a cluster after these tasks."""
    hosts = tuple(Host(name, {"task": 1}, speed=speed) for name, speed in stated.items())
    known = estimate_rates(tasks).cluster(Cluster(hosts))
    return {host.name: host.speed for host in known.hosts}


@given(st.integers(1, 30), positive)
def test_a_speed_is_used_after_enough_observations(count: int, speed: float) -> None:
    """From twelve tasks on; one large task among small ones is not many."""
    many = [seen(1.0, host="plain")] * 99
    believed = speeds_of(many + [seen(1 / speed, host="odd")] * count, plain=1.0, odd=1.0)
    known = speed if count >= 12 else 1.0
    assert believed == pytest.approx({"plain": 1.0, "odd": known}, rel=1e-3)
    large = [seen(100 / speed, 10_000, "odd"), *[seen(0.01 / speed, 1, "odd")] * count]
    assert speeds_of([*many * 99, *large], plain=1.0, odd=1.0)["odd"] == 1.0


@given(st.lists(st.floats(0.5, 2), min_size=12, max_size=40), st.floats(0.2, 5))
def test_differences_within_the_noise_are_not_used(factors: list[float], speed: float) -> None:
    """Where times differ much from task to task, a small difference of speed tells nothing."""
    many = [seen(1.0, host="plain")] * 99
    odd = [seen(factor / speed, host="odd") for factor in factors]
    (found,) = (s for s in estimate_rates(many + odd).speeds if s.host == "odd")
    believed = speeds_of(many + odd, plain=1.0, odd=1.0)["odd"]
    error = 1.86 * log(1 + found.spread) / len(factors) ** 0.5
    off = abs(log(found.speed))
    assert believed == pytest.approx(
        found.speed if off > max(2 * error, 1e-6) else 1.0, rel=1e-3
    )


def test_a_host_is_known_by_name_and_stated_speed() -> None:
    """Said to be of another speed, it is another host; one nobody has seen stays as stated."""
    tasks = [seen(1.0, host="a")] * 13 + [seen(1.0, host="b", speed=2.0)] * 12
    assert speeds_of(tasks, a=1.0, b=2.0, c=3.0) == pytest.approx(
        {"a": 1.0, "b": 1.0, "c": 3.0}
    )
    assert speeds_of(tasks, a=1.0, b=1.0) == {"a": 1.0, "b": 1.0}
