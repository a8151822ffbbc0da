"""Random malleable problems for hypothesis, odd ones among them."""

from __future__ import annotations

from hypothesis import strategies as st

from slotwise.core.objective import Aggregate, Cost, Curve, Hinge, Line, Steps
from slotwise.policy.malleable import Malleable


@st.composite
def costs(draw: st.DrawFn, kinds: str = "line hinge steps curve") -> Cost:
    """A cost of one of the kinds."""
    kind = draw(st.sampled_from(kinds.split()))
    weight = draw(st.sampled_from([1.0, 0.25]) | st.floats(0.05, 2))
    due = draw(st.sampled_from([0.0, 3.0]) | st.floats(0, 30))
    if kind == "line":
        return Line(weight, draw(st.sampled_from([0.0, due])))
    if kind == "hinge":
        return Hinge(weight, due)
    if kind == "curve":
        return Curve(lambda completion: weight * completion * completion)
    steps = [(due, weight)]
    for _ in range(draw(st.integers(0, 2))):
        steps.append((steps[-1][0] + draw(st.floats(0.1, 9)), 1.5 * steps[-1][1]))
    return Steps(tuple(steps))


@st.composite
def problems(
    draw: st.DrawFn,
    aggregate: Aggregate = "sum",
    kinds: str = "line hinge steps curve",
    jobs_most: int = 6,
    with_least: bool = True,
) -> Malleable:
    """Up to `jobs_most` jobs, equal and tiny ones among them; min shares may not fit."""
    capacity = draw(st.sampled_from([1.0, 4.0, 10.0, 2.5]))
    count = draw(st.integers(1, jobs_most))
    work = [draw(st.sampled_from([1.0, 5.0]) | st.floats(0.01, 60)) for _ in range(count)]
    max_share = [draw(st.sampled_from([1.0, 50.0]) | st.floats(0.1, 12)) for _ in range(count)]
    min_share = [
        min(top, draw(st.sampled_from([0.0, 0.5, 2.0]) if with_least else st.just(0.0)))
        for top in max_share
    ]
    chosen = [draw(costs(kinds)) for _ in range(count)]
    return Malleable.of(capacity, work, min_share, max_share, chosen, aggregate)
