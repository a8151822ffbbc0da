"""Durations, sizes and parts in percent, from text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotwise.core.cluster import Cluster, Host
from slotwise.core.errors import InputError
from slotwise.core.pools import Pool, PoolTree
from slotwise.core.units import Percent, duration, seconds_of, seconds_or_duration, size

DURATIONS = {
    "250ms": 0.25,
    "90s": 90.0,
    "0.1s": 0.1,
    "5m": 300.0,
    "5 min": 300.0,
    "1.5h": 5400.0,
    "1h30m": 5400.0,
    " 1h 30m ": 5400.0,
    "2d": 172_800.0,
    "1d2h3m4s5ms": 93_784.005,
}


@pytest.mark.parametrize("text", DURATIONS)
def test_a_duration(text: str) -> None:
    """Units are combined in decreasing order."""
    assert duration(text) == DURATIONS[text]


@pytest.mark.parametrize(
    "text", ["", "m", "30m1h", "5 parsecs", "5M", "-5m", "5mm", "1e3s", "1h30", "٥m2"]
)
def test_no_duration(text: str) -> None:
    """Anything else is refused with examples of what is expected."""
    with pytest.raises(ValueError, match="expected seconds, or a duration such as 5m or 1h30m"):
        duration(text)


@pytest.mark.parametrize("text", ["60", "1e3", "0.5", "nan"])
def test_a_number_in_quotes(text: str) -> None:
    """In a file, numbers have no quotes; on the command line they have none anyway."""
    with pytest.raises(ValueError, match="expected a number, without quotes"):
        duration(text)
    assert str(seconds_or_duration(text)) == str(float(text))


@given(st.tuples(st.integers(0, 9), st.integers(0, 23), st.integers(0, 59)))
def test_parts_add_up(parts: tuple[int, int, int]) -> None:
    """A duration is the sum of its parts."""
    days, hours, minutes = parts
    total = ((days * 24 + hours) * 60 + minutes) * 60
    assert duration(f"{days}d{hours}h{minutes}m") == total


def test_a_caller_gets_the_name_of_the_value() -> None:
    """Text is converted, other values pass, and what is wrong is named."""
    assert (seconds_of("deadline", "5m"), seconds_of("deadline", None)) == (300.0, None)
    with pytest.raises(InputError, match="deadline is 'soon'; expected seconds, or a duration"):
        seconds_of("deadline", "soon")


SIZES = {
    "512k": 512_000,
    "64MB": 64_000_000,
    "4GB": 4 * 10**9,
    "4 GiB": 4 << 30,
    "1.5 kb": 1500,
    "1KiB": 1024,
    "2 TiB": 2 << 40,
    "12B": 12,
}


@pytest.mark.parametrize("text", SIZES)
def test_a_size(text: str) -> None:
    """Units are powers of 1000, and with an i powers of 1024."""
    assert size(text) == SIZES[text]


@pytest.mark.parametrize("text", ["", "GB", "1 Gbit", "0.0001k", "-1k", "1 PB"])
def test_no_size(text: str) -> None:
    """Parts of bytes and other units are refused."""
    with pytest.raises(ValueError, match="expected a whole number of bytes, or a size such as"):
        size(text)


@pytest.mark.parametrize("text", ["0%", "100.1%", "-5%", "half", "%"])
def test_no_part(text: str) -> None:
    """A part is above nothing and at most all."""
    with pytest.raises(ValueError, match="a part of the cluster such as 50%, at most 100%"):
        Percent.of(text)


def test_parts_of_a_cluster_are_rounded_down() -> None:
    """A max share has at least one slot; a min share may have none."""
    pool = Pool("a", slots_min="10%", slots_max="50%").on(Cluster.of_slots(7))
    assert (pool.slots_min, pool.slots_max) == ({"task": 0}, {"task": 3})
    assert Pool("a", slots_max="1%").on(Cluster.of_slots(7)).slots_max == {"task": 1}


MIXED = Cluster((Host("h", {"map": 10, "reduce": 4}), Host("i", {"map": 2, "task": 8})))

SHARES = [
    ({"map": "50%"}, {"map": 6}),
    ("50%", {"task": 12}),
    ({"map": "50%", "task": "50%"}, {"map": 6, "task": 6}),
    ({"copy": "25%", "map": 5}, {"copy": 2, "map": 5}),
]


@pytest.mark.parametrize(("stated", "slots"), SHARES)
def test_a_part_is_of_the_slots_of_its_kind(stated: object, slots: object) -> None:
    """A plain one is of all kinds without one of their own; other kinds use plain slots."""
    tree = PoolTree([Pool("a", slots_max=stated)]).on(MIXED)
    assert tree["a"].slots_max == slots


def test_a_min_share_above_the_max_share() -> None:
    """It is refused at once where both are parts, and else when the cluster is known."""
    with pytest.raises(
        InputError, match="slots_min 60% of kind 'task' is above its slots_max 5"
    ):
        Pool("a", slots_min="60%", slots_max="50%")
    mixed = Pool("a", slots_min="50%", slots_max=3)
    with pytest.raises(InputError, match="slots_min 4 of kind 'task' is above its slots_max 3"):
        mixed.on(Cluster.of_slots(8))
