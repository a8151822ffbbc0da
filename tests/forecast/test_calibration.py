"""Ranges hold what they state once errors are known, also in classes and after a change."""

from __future__ import annotations

import json
import random
from math import inf

import numpy as np
import pytest

from slotwise.forecast.calibration import ENOUGH, Calibration, Issued
from slotwise.forecast.eta import Range


def corrected(
    calibration: Calibration, raw: Range, name: str = "many", least: float = 0.0
) -> Range:
    """One range."""
    row = np.array([[raw.low, raw.median, raw.high]])
    return Range(*calibration.correct(row, [name], least)[0].tolist())


def coverage(
    calibration: Calibration, wrong_by: float, count: int, name: str = "many"
) -> float:
    """Of truths that vary more than the simulations by this factor."""
    rng, held = random.Random(1), 0
    for _ in range(count):
        scale = rng.uniform(50, 5000)
        raw = Range(scale * 0.8, scale, scale * 1.3)
        given = corrected(calibration, raw, name)
        truth = scale * rng.lognormvariate(0, 0.25 * wrong_by)
        held += given.low <= truth <= given.high
        calibration.note(Issued(name, 0.0, raw, given, calibration.usual), truth)
    return held / count


@pytest.mark.parametrize("wrong_by", [0.3, 1.0, 4.0])
def test_ranges_hold_four_of_five(wrong_by: float) -> None:
    """Ranges hold four of five."""
    calibration = Calibration()
    coverage(calibration, wrong_by, 500)
    assert coverage(calibration, wrong_by, 2000) == pytest.approx(0.8, abs=0.03)


def test_they_adapt_to_what_changes() -> None:
    """They adapt to what changes."""
    calibration = Calibration()
    coverage(calibration, 0.3, 2000)
    assert coverage(calibration, 4.0, 300) < 0.75
    assert coverage(calibration, 4.0, 2000) == pytest.approx(0.8, abs=0.04)


def test_a_class_with_larger_errors_gets_wider_ranges() -> None:
    """Alone, neither of two classes whose errors differ has the coverage of both."""
    calibration, rng = Calibration(), random.Random(2)
    held: dict[str, list[bool]] = {"calm": [], "wild": []}
    for turn in range(12_000):
        name = "wild" if turn % 5 == 0 else "calm"
        raw = Range(80.0, 100.0, 130.0)
        given = corrected(calibration, raw, name)
        truth = 100 * rng.lognormvariate(0, 0.6 if name == "wild" else 0.2)
        held[name].append(given.low <= truth <= given.high)
        calibration.note(Issued(name, 0.0, raw, given, calibration.usual), truth)
    for one in held.values():
        last = one[len(one) // 2 :]
        assert sum(last) / len(last) > 0.74


def test_without_errors_ranges_are_wider_than_simulated() -> None:
    """Without errors ranges are wider than simulated."""
    raw = Range(50.0, 100.0, 200.0)
    given = corrected(Calibration(), raw)
    assert given.low < raw.low
    assert given.high > raw.high


def test_errors_of_another_scheduler_correct_until_own_ones_replace_them() -> None:
    """Simulations are wrong for both in a similar way; without errors, ranges are a guess."""
    calibration = Calibration()
    coverage(calibration, 3.0, 3_000)
    calibration.change_scheduler()
    assert calibration.of_another == 500
    assert coverage(calibration, 3.0, 60) == pytest.approx(0.8, abs=0.1)
    assert (calibration.noted, calibration.of_another) == (60, 440)
    coverage(calibration, 1.0, 1_500)
    assert calibration.of_another == 0
    assert coverage(calibration, 1.0, 1_000) == pytest.approx(0.8, abs=0.03)


def test_a_range_that_has_passed_is_a_miss_before_the_truth_is_known() -> None:
    """Later ranges of the class are wider, and the truth does not count as another miss."""
    both = []
    for is_known in (True, False):
        calibration = Calibration()
        coverage(calibration, 1.0, 600)
        raw = np.array([[80.0, 100.0, 130.0]])
        given = calibration.correct(raw, ["many"])
        open_ones = [calibration.issue("many", 0.0, raw[0], given[0]) for _ in range(30)]
        for one in open_ones if is_known else ():
            calibration.note_present(one, 1e4)
            calibration.note_present(one, 2e4)
        both.append(corrected(calibration, Range(80.0, 100.0, 130.0)).high)
        for one in open_ones:
            calibration.note(one, 2e4)
        both.append(corrected(calibration, Range(80.0, 100.0, 130.0)).high)
    early, late, unknown, late_unknown = both
    assert early > unknown
    assert late == late_unknown > early


def test_nothing_ends_before_the_present() -> None:
    """Nothing ends before the present."""
    given = corrected(Calibration(), Range(1.0, 2.0, 500.0), least=3.0)
    assert (given.low, given.median) == (3.0, 3.0)


def test_open_ranges_stay_open_and_teach_nothing() -> None:
    """Open ranges stay open and teach nothing."""
    calibration = Calibration()
    raw = Range(inf, inf, inf)
    assert corrected(calibration, raw) == raw
    calibration.note(Issued("many", 0.0, raw, raw, 0.0), 5.0)
    assert calibration.noted == 0


def test_what_was_kept_gives_the_same_ranges() -> None:
    """What was kept gives the same ranges."""
    calibration = Calibration()
    coverage(calibration, 2.0, ENOUGH + 100)
    again = Calibration.of(json.loads(json.dumps(calibration.plain())))
    raw = Range(50.0, 100.0, 200.0)
    expected, found = (corrected(one, raw) for one in (calibration, again))
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-4)
    assert again.noted == calibration.noted


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {
            "noted": 1,
            "of_another": 0,
            "sizes": [],
            "tails": [{"errors": {}, "shares": {}, "misses": {}}],
        },
        {
            "noted": 1,
            "of_another": 0,
            "tails": [{"errors": "x", "shares": 3, "misses": {}}] * 2,
        },
        {
            "noted": 1,
            "of_another": 0,
            "tails": [{"errors": {"x": ["nan"]}, "shares": {}, "misses": {}}] * 2,
        },
        {
            "noted": 1,
            "of_another": 0,
            "tails": [{"errors": {"x": 1.0}, "shares": {}, "misses": {}}] * 2,
        },
    ],
)
def test_anything_else_is_refused(plain: dict[str, object]) -> None:
    """Anything else is refused."""
    with pytest.raises((AttributeError, KeyError, TypeError, ValueError)):
        Calibration.of(plain)
