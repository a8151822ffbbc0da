"""The figures with live runs on Dask clusters of processes on this machine, tiny."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from distributed import Client

from experiments import reproduce as reproducing
from experiments.dask_cluster import dask_cluster
from experiments.dmrs import live, profiles
from experiments.dmrs.experiment import DMRS
from experiments.flowflex.cluster import FlowClusterSetting, Scheme, completions
from experiments.flowflex.cluster_figures import FLOWFLEX_12_ON_DASK
from experiments.flowflex.jobs import GridMixFlows
from experiments.hammr import experiment as hammr
from experiments.moosefs import lacks
from experiments.reproduce import FIGURES, ON_DASK, reproduce
from experiments.slides import miniature
from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.decisions import Locality


def test_their_files_are_not_those_of_the_figures_on_one_machine() -> None:
    """The names of the files tell them apart, and the columns are the same."""
    assert set(ON_DASK) < set(FIGURES)
    for name, figure in ON_DASK.items():
        assert figure.name == f"{name}-dask"


@pytest.mark.slow
def test_a_cluster_has_the_hosts_that_are_asked_for() -> None:
    """A worker for each, with its name, threads and address; all end with the context."""
    hosts = (Host("one", {ANY_KIND: 2}), Host("two", {ANY_KIND: 1}, addresses=("127.0.0.2",)))
    with dask_cluster(Cluster(hosts)) as address:
        with Client(address, set_as_default=False) as client:
            workers = client.scheduler_info(n_workers=-1)["workers"]
        found = {one["name"]: (one["nthreads"], one["host"]) for one in workers.values()}
        assert found == {"one": (2, "127.0.0.1"), "two": (1, "127.0.0.2")}
    with pytest.raises(OSError, match=r"\d"):
        Client(address, set_as_default=False, timeout=1)


@pytest.mark.slow
def test_hammr_counts_every_word_on_three_hosts() -> None:
    """`live` asserts it. C gets half of the slots."""
    shares = hammr.live(10.0, hammr.DASK_HOSTS)
    assert max(one.slots["C"] for one in shares) >= hammr.SLOTS / 2
    assert max(sum(one.slots.values()) for one in shares) == hammr.SLOTS


@pytest.mark.slow
def test_flows_run_on_four_hosts() -> None:
    """They take at least as long as their tasks sleep."""
    hosts = FLOWFLEX_12_ON_DASK.setting.hosts
    assert hosts is not None
    setting = FlowClusterSetting(
        GridMixFlows(flows=3, jobs_most=3, blocks=20), slots=8, speed=200.0, hosts=hosts
    )
    jobs = setting.jobs.draw(np.random.default_rng([0, 1]))
    ends = completions(setting, jobs, Scheme("fair"))
    assert set(ends) == {job.id for job in jobs}
    assert max(ends.values()) >= sum(job.work or 0.0 for job in jobs) / 8


@pytest.mark.slow
def test_dmrs_learns_the_speeds_of_four_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """All jobs are done, above the bound for the speeds that were learned."""
    monkeypatch.setattr(live, "SIZES", {"wordcount": live.SIZES["wordcount"]})
    monkeypatch.setattr(profiles, "DRAWN", 10_000)
    tiny = replace(ON_DASK["dmrs-2-live"], schedulers=(DMRS,), scale=0.1)  # type: ignore[type-var]
    monkeypatch.setattr(reproducing, "ON_DASK", {"dmrs-2-live": tiny})
    [row] = reproduce("dmrs-2-live", runs=1, on_dask=True).rows
    assert row["over_bound"] >= 1
    assert 0 < row["slow_speed"] < 1


@pytest.mark.slow
@pytest.mark.skipif(bool(lacks()), reason=lacks())
def test_waiting_brings_maps_to_their_blocks_on_moosefs() -> None:
    """Jobs of one map: about a quarter are local without waiting, and most with it."""
    parts = {}
    for waits in (None, miniature.WAITS):
        trial = replace(miniature.trial_of(1, "fair", waits), seconds=10.0)
        seen = miniature.observe_on_moosefs(trial, 0, 0)
        assert seen["crowd"].done > seen["job"].done > 0
        assert seen["crowd"].launches.keys() == {Locality.NODE}  # They have no input.
        parts[waits] = seen["job"].node
    assert parts[None] < 0.6 < parts[miniature.WAITS]
