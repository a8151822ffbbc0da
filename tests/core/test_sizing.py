"""Learned memory: estimates from finished tasks, their margins, and retries."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from statistics import correlation

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotwise.core.sizing import (
    BEYOND,
    CASES_MIN,
    CAUTION,
    FADING,
    FAILURE_COST,
    KEPT,
    LINEAR,
    MARGINS,
    PADDING,
    REPLAYED_FROM,
    Case,
    LearnedMemory,
)

GIB = 1 << 30
SHUFFLED = [37 * k % 61 for k in range(1, 61)]
"""The numbers from 1 to 60, in a mixed order."""


def learned(*cases: Case) -> LearnedMemory:
    """What these cases teach, in their order."""
    return LearnedMemory.of(cases)


def test_few_cases_give_no_estimate() -> None:
    """The first estimate comes with the tenth case, and a retry needs none."""
    nine = learned(*[(None, GIB)] * (CASES_MIN - 1))
    assert nine.estimate() is None
    nine.note(GIB)
    assert nine.estimate() is not None
    assert learned().after_failure(1000) == 1500


def test_equal_peaks_get_the_least_margin() -> None:
    """Of tasks that all need the same, the margin shrinks with their number."""
    assert learned(*[(None, GIB)] * 10).estimate() == ceil(GIB * (1.02 + 0.1)) + PADDING
    assert learned(*[(None, GIB)] * 500).estimate() == ceil(GIB * (1.02 + 0.002)) + PADDING


def test_a_line_goes_beyond_the_sizes_seen() -> None:
    """Peaks that are a line in the input are continued to a size never seen."""
    seen = learned(*[(k * GIB, 2 * k * GIB) for k in SHUFFLED])
    estimate = seen.estimate(90 * GIB)
    assert estimate is not None
    assert 180 * GIB < estimate < 180 * 1.05 * GIB


def test_a_line_is_continued_even_if_the_nearest_were_better() -> None:
    """Where growing sizes wait, the nearest know nothing of them; twice the largest at most."""
    steps = [(k * GIB, (10 + 20 * ((k - 1) // 20)) * GIB) for k in SHUFFLED]
    seen = learned(*steps * 4)
    small, larger, largest = (seen.estimate(size * GIB) or 0 for size in (10, 70, 1000))
    assert 10 * GIB < small < 11 * GIB
    assert 70 * GIB < larger < 90 * GIB
    assert largest == 2 * 50 * GIB + PADDING


def test_a_line_does_not_go_below_the_least_peak() -> None:
    """A small input gets what some task has needed, even where the line is negative."""
    seen = learned(*[((k + 10) * GIB, 2 * k * GIB) for k in SHUFFLED])
    estimate = seen.estimate(0)
    assert estimate is not None
    assert 2 * GIB < estimate < 2.085 * GIB + PADDING


def test_nearest_sizes_explain_what_a_line_does_not() -> None:
    """Small and large inputs need much, those between little: the nearest decide."""
    peaks = {1: 8, 2: 1, 3: 8}
    seen = learned(*[(size * GIB, peaks[size] * GIB) for _ in range(40) for size in peaks])
    middle = seen.estimate(2 * GIB)
    assert middle is not None
    assert GIB < middle < 1.2 * GIB


def test_sizes_that_explain_nothing_are_not_used() -> None:
    """Where the peak does not follow the size, every task gets more than the largest peak."""
    peaks = [(k * 7919) % 101 for k in range(100)]
    seen = learned(*[((k * 31) % 97 * GIB, (100 + peak) * GIB) for k, peak in enumerate(peaks)])
    estimates = [seen.estimate(size * GIB) for size in (0, 50, 96)]
    assert all(estimate and estimate > 200 * GIB for estimate in estimates)


@pytest.mark.parametrize("unsized", [None, 0])
def test_one_unknown_size_is_enough_not_to_use_sizes(unsized: int | None) -> None:
    """Sizes count only if all kept cases have one; a size of zero is one."""
    cases: list[Case] = [(k * GIB, k * GIB) for k in range(1, 61)]
    estimate = learned((unsized, GIB), *cases).estimate(GIB)
    assert estimate is not None
    assert (estimate > 60 * GIB) == (unsized is None)


def test_a_task_of_unknown_size_gets_more_than_the_largest_peak() -> None:
    """Whatever the sizes of others explain."""
    estimate = learned(*[(k * GIB, k * GIB) for k in range(1, 61)]).estimate()
    assert estimate is not None
    assert estimate > 60 * GIB


def test_a_retry_gets_more_than_the_largest_peak_and_grows() -> None:
    """First what the largest task needed and a tenth, then half more each time."""
    seen = learned(*[(None, k * GIB) for k in range(1, 21)])
    first = seen.after_failure(2 * GIB)
    assert first == 22 * GIB + PADDING
    assert seen.after_failure(first) == ceil(1.5 * first)


def test_failures_widen_the_margin_until_others_had_enough() -> None:
    """A failed attempt counts even if what is known at its end would have been enough."""
    seen = learned(*[(None, GIB)] * KEPT)
    usual = seen.estimate() or 0
    for _ in range(2):
        seen.note(GIB, has_failed=True)
    assert seen.estimate() == ceil(usual * (1 + 2 * CAUTION))
    before = seen.estimate() or 0
    for _ in range(20):
        seen.note(GIB)
        after = seen.estimate() or 0
        assert usual < after < before
        before = after
    for _ in range(2000):
        seen.note(GIB)
    assert usual <= (seen.estimate() or 0) <= usual + 1


def test_old_cases_are_forgotten() -> None:
    """After `KEPT` further tasks, the peak of an older version of a program is gone."""
    seen = learned((None, 100 * GIB), *[(None, GIB)] * (KEPT - 1))
    before = seen.estimate()
    seen.note(GIB)
    after = seen.estimate()
    assert before is not None
    assert after is not None
    assert after < 2 * GIB < 100 * GIB < before
    assert seen.plain() == [(None, GIB)] * KEPT


CASES = st.lists(
    st.tuples(st.none() | st.integers(0, 1 << 40), st.integers(0, 1 << 40)), max_size=60
)


@given(CASES, st.none() | st.integers(0, 1 << 42))
def test_plain_cases_teach_the_same(cases: list[Case], size: int | None) -> None:
    """Learning again from the kept cases gives the same estimate."""
    seen = learned(*cases)
    assert seen.plain() == cases
    assert learned(*seen.plain()).estimate(size) == seen.estimate(size)


@given(CASES, st.none() | st.integers(0, 1 << 42))
def test_the_rule_holds(cases: list[Case], size: int | None) -> None:
    """Every estimate is that of the rule, computed anew from its definition in fractions."""
    assert_near(learned(*cases).estimate(size), by_definition(cases, size))


def assert_near(found: int | None, exact: list[int] | None) -> None:
    """Floats may round to another byte."""
    if exact is None:
        assert found is None
    else:
        assert found is not None
        assert any(abs(found - one) <= 1 + one * 1e-9 for one in exact)


def by_definition(cases: list[Case], size: int | None) -> list[int] | None:
    """What the rule says; several values if floats cannot tell which costs less."""
    if len(cases) < CASES_MIN:
        return None
    costs, cautions = [Fraction(0)] * 9, {Fraction(0)}
    for k in range(REPLAYED_FROM, len(cases)):
        earlier, (its_size, peak) = cases[:k], cases[k]
        if k >= CASES_MIN:
            cautions = {
                caution * Fraction(FADING) if peak <= given else caution + Fraction(CAUTION)
                for caution in cautions
                for given in chosen(costs, earlier, its_size, caution)
            }
        mean = Fraction(sum(p for _, p in earlier), k)
        for which, allocated in enumerate(candidates(earlier, its_size)):
            fits = peak <= allocated
            costs[which] += allocated - peak if fits else allocated + FAILURE_COST * mean
    return [one for caution in cautions for one in chosen(costs, cases, size, caution)]


def chosen(
    costs: list[Fraction], cases: list[Case], size: int | None, caution: Fraction
) -> list[int]:
    """The cheapest candidates, or the line beyond the sizes seen, with this caution."""
    last = [
        (cost, ceil(one * (1 + caution)))
        for cost, one in zip(costs, candidates(cases, size), strict=True)
    ]
    found = cheapest(last)
    if not is_beyond(cases, size):
        return found
    limit = BEYOND * max(peak for _, peak in cases) + PADDING
    return [max(one, min(line, limit)) for one in found for line in cheapest(last[3:6])]


def cheapest(candidates: list[tuple[Fraction, int]]) -> list[int]:
    """Those of the least cost, several if floats cannot tell which is less."""
    least = min(candidates)[0] * (1 + Fraction(1, 10**9)) + 1000
    return [one for cost, one in candidates if cost <= least]


def is_beyond(cases: list[Case], size: int | None) -> bool:
    """Whether a line is continued: the size is larger than all, and the peaks correlate."""
    sizes = [one for one, _ in cases if one is not None]
    if size is None or len(sizes) < len(cases) or size <= max(sizes):
        return False
    peaks = [peak for _, peak in cases]
    if len(set(sizes)) == 1 or len(set(peaks)) == 1:
        return False
    return correlation(sizes, peaks) > LINEAR


def candidates(cases: list[Case], size: int | None) -> list[int]:
    """Each base by each margin, rounded up, and the padding."""
    bases = [Fraction(base) for base in bases_of(cases, size)]
    factors = [Fraction(margin) + Fraction(1, len(cases)) for margin in MARGINS]
    return [ceil(base * factor) + PADDING for base in bases for factor in factors]


def bases_of(cases: list[Case], size: int | None) -> list[Fraction | int]:
    """The largest peak, the raised line, and the largest of the nearest."""
    peaks = [peak for _, peak in cases]
    sizes = [one for one, _ in cases if one is not None]
    if size is None or len(sizes) < len(cases):
        return [max(peaks)] * 3
    n = len(cases)
    mean_size, mean_peak = Fraction(sum(sizes), n), Fraction(sum(peaks), n)
    spread = sum((one - mean_size) ** 2 for one in sizes)
    line: Fraction | int = max(peaks)
    if spread:
        both = zip(sizes, peaks, strict=True)
        slope = sum((s - mean_size) * (p - mean_peak) for s, p in both) / spread
        above = max(p - slope * s for s, p in zip(sizes, peaks, strict=True))
        line = max(slope * size + above, Fraction(min(peaks)))
    count = next(k for k in range(5, n + 6) if k == n or (k >= 5 and 4 * (k + 1) ** 2 > 25 * n))
    last = sorted(abs(one - size) for one in sizes)[min(count, n) - 1]
    near = [p for s, p in zip(sizes, peaks, strict=True) if abs(s - size) <= last]
    return [max(peaks), line, max(near)]
