"""Vectors of resources: what fits, and how often."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotwise.core.cluster import Host
from slotwise.core.errors import InputError
from slotwise.core.resources import Resources, requested

AMOUNTS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9))
REQUESTS = st.dictionaries(st.sampled_from("abc"), st.integers(1, 4), min_size=1)


@given(AMOUNTS, REQUESTS)
def test_requests_fit_one_by_one(amounts: dict[str, int], request: dict[str, int]) -> None:
    """As many fit at once as can be taken one after the other."""
    has, left, count = Resources(amounts), dict(amounts), 0
    while all(left.get(name, 0) >= amount for name, amount in request.items()):
        left |= {name: left[name] - amount for name, amount in request.items()}
        count += 1
    assert has.times(Resources(request)) == count
    assert has.holds(Resources(request)) == (count > 0)


def test_an_amount_of_zero_is_none() -> None:
    """Vectors are compared by their amounts, and cannot be changed."""
    one = Resources({"map": 2, "reduce": 0})
    assert one == Resources({"map": 2}) == {"map": 2}
    assert list(one) == ["map"]
    with pytest.raises(TypeError):
        one["map"] = 3  # type: ignore[index]


def test_a_host_has_its_slots() -> None:
    """The slots of each kind are resources."""
    host = Host("h", {"map": 4, "reduce": 1})
    assert host.amounts.times(Resources({"map": 2, "reduce": 1})) == 1
    assert not host.amounts.holds(Resources({"copy": 1}))


def test_an_amount_that_is_too_large_is_refused_with_the_largest() -> None:
    """The message states the most that a resource may be."""
    with pytest.raises(InputError, match=r"license is 1e[+]18; give a number from 0 to 1,000,"):
        requested("resources", {"license": 1e18})


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"Memory": "4 GiB"}, "there is no resource 'Memory'; did you mean 'memory'?"),
        ({"GPU": 1}, "there is no resource 'GPU'; did you mean 'gpu'?"),
        ({"mem": "4 GiB"}, "there is no resource 'mem'; did you mean 'memory'?"),
        ({"Slots": 2}, "slots are stated beside it, with the key `slots`"),
        ({" ": 1}, "the name of a resource is ' '; give letters or digits"),
        ({"license ": 1}, "the name of a resource is 'license '; remove the spaces around it"),
        (
            {"memory": 10**16},
            "memory is 10000000000000000; give at most 1,000,000,000,000,000",
        ),
        ({"memory": -1}, "memory is -1; give bytes as a whole number >= 0"),
    ],
)
def test_a_name_or_an_amount_that_cannot_be_meant_is_refused(
    resources: dict[str, object], message: str
) -> None:
    """Names of users' own resources differ from those of known ones by more than case."""
    with pytest.raises(InputError) as error:
        requested("resources", resources)
    assert str(error.value).startswith(f"resources: {message}")
