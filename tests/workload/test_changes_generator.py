"""Random changes of hosts keep a cluster on which every task can run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise import Cluster, Host, InputError, Job, Phase, Tasks, replay, simulate
from slotwise.core.events import ChangingHosts, HostAdded
from slotwise.workload.file import read_workload
from slotwise.workload.generators import draw_changes
from slotwise.workload.writer import write_workload
from tiers import examples

HOSTS = st.lists(
    st.dictionaries(st.sampled_from(["map", "reduce"]), st.integers(1, 3), min_size=1),
    min_size=1,
    max_size=7,
)


@settings(max_examples=examples(50, slow=500))
@given(HOSTS, st.integers(0, 30), st.integers(0, 9))
def test_enough_hosts_stay(slots: list[dict[str, int]], count: int, seed: int) -> None:
    """Half of them, and for each kind of slot one of the largest, after every change."""
    cluster = Cluster(tuple(Host(f"h{number}", one) for number, one in enumerate(slots)))
    most = {kind: max(one.get(kind, 0) for one in slots) for kind in cluster.capacity}
    changes = draw_changes(cluster, count, 100.0, np.random.default_rng(seed))
    hosts, staying = ChangingHosts(cluster), dict(cluster.by_name)
    for change in changes:
        hosts.follow(change)  # Refuses what is not possible.
        if isinstance(change, HostAdded):
            staying[change.host.name] = change.host
        else:
            del staying[change.host]
        assert 2 * len(staying) >= len(slots)
        assert most == {
            kind: max(one.slots.get(kind, 0) for one in staying.values()) for kind in most
        }
    assert len(changes) == count
    assert [change.at for change in changes] == sorted(change.at for change in changes)
    assert all(0 <= change.at <= 100 for change in changes)


def test_the_same_seed_gives_the_same_changes_of_all_kinds() -> None:
    """Another seed gives others."""
    cluster = Cluster(tuple(Host(f"h{number}", {"task": 2}) for number in range(8)))
    one, same, other = (
        draw_changes(cluster, 20, 60.0, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert one == same != other
    assert {type(change).__name__ for change in one} == {
        "HostAdded",
        "HostDrained",
        "HostRemoved",
    }


def test_names_that_are_taken_are_not_given_again() -> None:
    """A host of the cluster may be named like an added one."""
    cluster = Cluster((Host("added-0", {"task": 1}),))
    changes = draw_changes(cluster, 4, 1.0, np.random.default_rng(0))
    added = [change.host.name for change in changes if isinstance(change, HostAdded)]
    assert added == [f"added-{number}" for number in range(1, len(added) + 1)]


def test_a_written_file_has_the_changes_and_replays(tmp_path: Path) -> None:
    """It simulates, and the replay makes the same decisions."""
    cluster = Cluster(tuple(Host(f"h{number}", {"task": 1}) for number in range(4)))
    changes = draw_changes(cluster, 12, 20.0, np.random.default_rng(5))
    job = Job("a", (Phase("p", Tasks(8, 2.0)),))
    jobs = [replace(job, id=f"j{number}", arrival=2.0 * number) for number in range(10)]
    file, log = tmp_path / "w.yaml", tmp_path / "log.jsonl"
    write_workload(jobs, file, cluster=cluster, changes=changes)
    assert read_workload(file).changes == changes
    result = simulate(file, "fair", log=log)
    assert result.failed == {}
    assert replay(log).is_identical


def test_changes_need_a_cluster_and_a_number(tmp_path: Path) -> None:
    """Otherwise no file is written."""
    cluster = Cluster((Host("h", {"task": 1}),))
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="the number of changes of hosts is -1"):
        draw_changes(cluster, -1, 1.0, rng)
    job = Job("a", (Phase("p", Tasks(1, 1.0)),))
    with pytest.raises(InputError, match="changes of the hosts need their cluster"):
        write_workload([job], tmp_path / "w.yaml", changes=draw_changes(cluster, 1, 1.0, rng))
