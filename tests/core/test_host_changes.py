"""Changes of hosts that are known in advance, and clusters that hosts join and leave."""

from __future__ import annotations

import pytest

from slotwise.core.cluster import Cluster, Host
from slotwise.core.errors import InputError
from slotwise.core.events import (
    HostAdded,
    HostDrained,
    HostRemoved,
    check_changes,
    hosts_ever,
    in_order,
    with_kinds,
)
from slotwise.core.job import Job, Phase, Tasks

CLUSTER = Cluster((Host("h1", {"task": 1}),), heartbeat=3.0)
OTHER = Host("h2", {"map": 2, "reduce": 0}, "far", 2.0)


def test_a_kind_of_slots_stays_known_when_its_last_host_has_left() -> None:
    """So the cluster may be empty, and phases keep their kind of slots."""
    left = CLUSTER.with_host(OTHER).without("h1").without("h2")
    assert left.hosts == ()
    assert left.heartbeat == 3.0
    assert left.capacity == {"map": 0, "task": 0}
    assert (left.slot_kind("map"), left.slot_kind("reduce")) == ("map", "task")


def test_a_cluster_of_a_user_has_slots() -> None:
    """Only one whose hosts have left has none."""
    with pytest.raises(InputError, match="the cluster has no slots"):
        Cluster(())


def test_a_name_can_be_used_again_after_a_removal() -> None:
    """Also where the host was drained before."""
    changes = [HostDrained(1.0, "h1"), HostRemoved(2.0, "h1"), HostAdded(2.0, CLUSTER.hosts[0])]
    check_changes(CLUSTER, changes, [Job("j", (Phase("map", Tasks(1, 1.0)),))])


def test_changes_of_one_instant_keep_their_order() -> None:
    """Others are sorted by time."""
    first, second, third = HostRemoved(1.0, "h1"), HostAdded(2.0, OTHER), HostDrained(2.0, "h2")
    assert in_order([second, third, first]) == [first, second, third]


def test_all_hosts_that_are_ever_there() -> None:
    """Each name once, as it is first."""
    changes = [HostAdded(5.0, Host("h2", {"task": 9})), HostAdded(2.0, OTHER)]
    assert hosts_ever(CLUSTER, changes).hosts == (*CLUSTER.hosts, OTHER)


def test_jobs_may_wait_for_later_hosts_only_without_plain_slots() -> None:
    """With plain slots a job that arrives before these hosts runs there."""
    changes = [HostAdded(5.0, OTHER)]
    assert with_kinds(CLUSTER, changes) == CLUSTER
    reduces = Cluster((Host("h1", {"reduce": 1}),))
    assert with_kinds(reduces, changes).capacity == {"map": 0, "reduce": 1}


@pytest.mark.parametrize(("arrival", "is_fine"), [(1.0, False), (3.0, True)])
def test_jobs_that_could_wait_forever_are_refused(arrival: float, is_fine: bool) -> None:
    """Maps that come before the host for maps need the plain slots, which are then gone."""
    job = Job("j", (Phase("map", Tasks(1, 1.0), "map"),), arrival)
    changes = [HostAdded(2.0, OTHER), HostDrained(9.0, "h1")]
    if is_fine:
        check_changes(CLUSTER, changes, [job])
    else:
        with pytest.raises(InputError, match="no host has slots of kind 'task' after the last"):
            check_changes(CLUSTER, changes, [job])
