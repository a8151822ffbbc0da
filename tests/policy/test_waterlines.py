"""Many water-lines at once against one at a time."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slotwise.policy.waterline import in_orders, water_line, water_lines
from tiers import examples

One = tuple[float, list[float], list[float], list[float]]

sizes = st.sampled_from([0.1, 0.3, 0.7, 1.0, 2.0]) | st.floats(0.01, 10)


@st.composite
def ones(draw: st.DrawFn) -> One:
    """Slots for some shares, or for none; the slots may be all that they can use."""
    count = draw(st.integers(0, 5))
    weight = [draw(sizes | st.sampled_from([1e-4, 1e4])) for _ in range(count)]
    max_share = [draw(st.integers(1, 9) | sizes) for _ in range(count)]
    min_share = [draw(st.sampled_from([0.0, 0.0, 0.5, 1.0])) * high for high in max_share]
    part = draw(st.sampled_from([0.0, 0.5, 1 - 1e-16, 1 - 3e-16, 1.0]) | st.floats(0.01, 1.5))
    return part * (sum(max_share) or 1.0), weight, min_share, max_share


@settings(max_examples=examples(15, slow=1000))
@given(st.lists(ones(), min_size=1, max_size=4), st.randoms(use_true_random=False))
# Rounding at an inner bend, and beyond the last one: see test_waterline.py.
@example(
    [
        (19.0, [0.10931808071870011, 0.7, 0.82, 0.92, 0.3], [2, 1, 1, 0, 1], [4, 2, 6, 8, 1]),
        (
            13.962795650997931,
            [0.7, 0.7, 0.3, 1, 0.7, 0.1],
            [1, 0, 0, 1.6718545715267321, 0.9495874627232023, 0],
            [1, 3, 2, 1.9627956509979316, 3, 3],
        ),
    ],
    None,
)
def test_each_group_shares_as_if_alone(problems: list[One], random: object) -> None:
    """For any shares in other groups, and in any order."""
    slots = np.array([one[0] for one in problems])
    group = np.concatenate([[n] * len(one[1]) for n, one in enumerate(problems)]).astype(int)
    columns = [np.array(list(chain(*(one[k] for one in problems))), float) for k in (1, 2, 3)]
    apart = list(chain(*(water_line(*one) for one in problems)))
    places = list(range(len(apart)))
    if random is not None:
        random.shuffle(places)  # type: ignore[attr-defined]
    together = water_lines(slots, group[places], *(column[places] for column in columns))
    assert together == pytest.approx(np.array(apart)[places], rel=1e-9, abs=1e-9)


def test_in_each_group_the_rest_goes_to_the_first() -> None:
    """Of 9 slots, 5 and 3 after 1 for the last; min shares of 6 and 2 on 4 slots are scaled."""
    group = np.array([0, 0, 0, 2, 2])
    min_share = np.array([0.0, 0, 1, 6, 2])
    max_share = np.array([5.0, 5, 5, 7, 7])
    shares = in_orders(np.array([9.0, 5.0, 4.0]), group, min_share, max_share)
    assert shares.tolist() == [5, 3, 1, 3, 1]
