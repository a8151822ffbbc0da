"""The sizes of jobs on a cluster."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.core.cluster import Cluster, Host
from slotwise.core.job import Job, Phase, Tasks
from slotwise.policy.claims import _size, size_on
from tiers import examples

WORK = st.none() | st.floats(0.0, 1e9)


@st.composite
def phases(draw: st.DrawFn) -> Phase:
    """A phase of maps or reduces, with or without limits and work."""
    count, slots = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    work = draw(WORK | st.tuples(*[st.floats(0.0, 1e9)] * count))
    slots_max = draw(st.none() | st.integers(slots, 12))
    kind = draw(st.sampled_from(["map", "reduce"]))
    return Phase("p", Tasks(count, work), kind, slots_max=slots_max, slots=slots)


@given(phase=phases(), maps=st.integers(0, 12), reduces=st.integers(0, 12))
@settings(max_examples=examples(50, slow=1000))
def test_the_size_of_a_job_of_one_phase_is_that_of_its_paths(
    phase: Phase, maps: int, reduces: int
) -> None:
    """It is computed without a search for the longest path, also on no slots of its kind."""
    host = Host("h", {"map": maps, "reduce": reduces})
    cluster = Cluster((host,), kinds=frozenset({"map", "reduce"}))
    job = Job("j", (phase,))
    assert size_on(job, cluster) == _size(job, cluster)
