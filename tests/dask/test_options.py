"""The configuration of the gate: what it accepts, what it refuses, who is in which pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.config
import pytest
import yaml

from slotwise.core.errors import InputError
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool
from slotwise.dask import install
from slotwise.dask.holding import ahead_of
from slotwise.dask.options import GateOptions, client_name, header_of

UNIQUE = "0a1b2c3d-1111-2222-3333-0a1b2c3d4e5f"


@pytest.mark.parametrize(
    ("client", "name"),
    [
        (f"Client-{UNIQUE}", "client"),
        (f"Client-alice-{UNIQUE}", "alice"),
        (f"Client-a-b-c-{UNIQUE}", "a-b-c"),
        ("fire-and-forget", "client"),
        (f"Client-a\x1b[2J-{UNIQUE}", "a?[2J"),
        (f"Client-{300 * 'x'}-{UNIQUE}", 100 * "x"),
    ],
)
def test_a_client_has_the_name_that_its_user_gave(client: str, name: str) -> None:
    """The rest of its id is unique, and says nothing."""
    assert client_name(client) == name


POOLS = [{"name": "reports"}, {"name": "research"}]


@pytest.mark.parametrize(
    ("client", "annotation", "address", "pool"),
    [
        ("x", {}, "", "default"),
        ("reports", {}, "", "reports"),
        ("reports", {"pool": "research"}, "", "research"),
        ("nightly-7", {"pool": "research"}, "", "reports"),
        ("x", {"priority": "high"}, "", "reports"),
        ("x", {}, "tcp://10.1.0.7:5", "research"),
    ],
)
def test_the_first_rule_that_matches_names_the_pool(
    client: str, annotation: dict[str, Any], address: str, pool: str
) -> None:
    """Without one, the annotation does, then the name of the client."""
    rules = [
        {"pool": "reports", "client": "nightly-*"},
        {"pool": "reports", "annotation": {"priority": "high"}},
        {"pool": "research", "address": "tcp://10.1.*"},
    ]
    options = GateOptions.of_mapping({"pools": POOLS, "rules": rules})
    found = options.submitter(f"Client-{client}-{UNIQUE}", annotation, address)
    assert found.pool == pool


def test_a_client_named_as_a_pool_with_pools_below_it_is_in_no_pool() -> None:
    """Its annotation holds nevertheless."""
    pools = [{"name": "lab"}, {"name": "alice", "parent": "lab"}]
    options = GateOptions.of_mapping({"pools": pools})
    found = options.submitter(f"Client-lab-{UNIQUE}", {"weight": 2, "deadline": 60})
    assert (found.pool, found.weight, found.deadline) == ("default", 2.0, 60.0)


def test_pools_may_be_stated_by_name() -> None:
    """With a weight or with keys, in a file or in Python."""
    stated: Any = {"prod": 3, "dev": {"slots_min": 2}}
    meant = (Pool("prod", 3), Pool("dev", slots_min={"task": 2}))
    assert GateOptions.of_mapping({"pools": stated}).pools == meant
    assert GateOptions(pools=stated).pools == meant


def test_pools_have_what_they_do_not_state_from_defaults() -> None:
    """Of the parent, and for all pools; `default` has them, too."""
    options = GateOptions.of_mapping(
        {
            "pool_defaults": {"jobs_max_per_user": 2},
            "pools": {"lab": {"child_defaults": {"jobs_max": 3}}, "ann": {"parent": "lab"}},
        }
    )
    lab, ann, default = options.pools
    assert (lab.jobs_max, ann.jobs_max, default.jobs_max) == (None, 3, None)
    assert [pool.jobs_max_of("x") for pool in options.pools] == [2, 2, 2]


def test_an_annotation_names_the_user() -> None:
    """Without it a computation is of nobody, and not of the account of Dask's scheduler."""
    options = GateOptions.of_mapping({})
    assert options.submitter("x", {"user": "ann"}).user == "ann"
    assert options.submitter("x", {}).user is None
    assert header_of(options).user is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"pools": {}, "pool_defaults": {"jobs_max": -1}}, "pool_defaults.jobs_max is -1: exp"),
        ({"pols": []}, "pols: unknown key 'pols'; did you mean 'pools'?"),
        ({"scheduler": "best"}, "scheduler is 'best': unknown scheduler; known: fifo, fair"),
        ({"pools": [{"name": "a", "weigth": 2}]}, "did you mean 'weight'?"),
        (
            {"pools": [{"name": "a", "resources_max": {"memory": 1}}]},
            "pool 'a': resources_max of memory takes the option `memory: true`, by which the"
            " gate knows what tasks need",
        ),
        (
            {"memory": True, "pools": [{"name": "a", "resources_max": {"gpu": 1}}]},
            "pool 'a': resources_max has 'gpu', but pools of the gate limit slots and memory"
            " only; leave it out",
        ),
        (
            {"pools": [{"name": "a", "preemption": {}}]},
            "pools[0].preemption: Dask cannot stop a running task; leave it out",
        ),
        (
            {"pools": [{"name": "a", "preemption": 1}]},
            "pools[0].preemption is 1: Dask cannot stop a running task; leave it out",
        ),
        ({"pools": {5: 1}}, "pools: the name of a pool is 5; expected a string"),
        ({"pools": {"b": 1, "a": {"weight": -2}}}, "pools.a.weight is -2: expected a number"),
        (
            {"pools": {"b": 1, "a": {"preemption": {}}}},
            "pools.a.preemption: Dask cannot stop a running task; leave it out",
        ),
        (
            {"pools": {"a": {"parent": "default"}, "default": 1}},
            "pools.default: pool 'default' has pools below it, but it is for the computations",
        ),
        ({"rules": [{"client": "a"}]}, "rules[0].pool: it is missing; add it"),
        ({"rules": [{"pool": "a"}]}, "rules[0].pool: unknown pool 'a'; known: default"),
        ({"ahead": -1}, "ahead is -1: expected a number >= 0"),
        ({"objective": "sla"}, "penalty 'sla' needs properties that computations of Dask"),
        (
            {"pools": {"a": {"slots_min": {"gpu": 1}}}},
            "pools.a: pool 'a' has shares of kind 'gpu', but the slots of Dask are of kind 'ta",
        ),
        (
            {"scheduler": "fairr"},
            "scheduler is 'fairr': unknown scheduler; did you mean 'fair'?",
        ),
        ([], "the value is []: expected keys and values, in braces { }; known keys: scheduler"),
        (
            {"pools": [{"name": "default"}, {"name": "a", "parent": "default"}]},
            "pools[0]: pool 'default' has pools below it, but it is for the computations",
        ),
    ],
)
def test_wrong_options_are_refused(wrong: Any, message: str) -> None:
    """The message names the place, the value and the remedy."""
    with pytest.raises(InputError) as error:
        GateOptions.of_mapping(wrong)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"pool": "other"}, "unknown pool 'other'; known: reports, research, default"),
        ({"pol": "reports"}, "unknown key 'pol'; did you mean 'pool'?"),
        ({"deadline": -1}, "deadline is -1: expected a number >= 0"),
        ({"priority": "urgent"}, "priority is 'urgent': expected 'very_high'"),
        (5, "slotwise=5: the value is 5: expected keys and values, in braces { }"),
        ({"pool": 5, "x": "y" * 10_000}, "slotwise={'pool': 5, 'x': 'yyyyy"),
    ],
)
def test_wrong_annotations_are_refused(wrong: Any, message: str) -> None:
    """They count as none, with this message as a warning."""
    options = GateOptions.of_mapping({"pools": POOLS})
    with pytest.raises(InputError) as error:
        options.submitter(f"Client-{UNIQUE}", wrong)
    assert message in str(error.value)
    assert len(str(error.value)) < 300


def test_a_file_says_where_it_is_wrong(tmp_path: Path) -> None:
    """The message has the name of the file and the line."""
    file = tmp_path / "gate.yaml"
    file.write_text("scheduler: fair\npools:\n  - name: a\n    slots_max: many\n")
    with pytest.raises(InputError, match=r"gate.yaml: pools\[0\].slots_max \(line 4\)"):
        GateOptions.read(file)
    with pytest.raises(InputError, match="No such file"):
        GateOptions.read(tmp_path / "none.yaml")


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    """All options have one."""
    file = tmp_path / "gate.yaml"
    file.touch()
    assert GateOptions.read(file) == GateOptions()


@pytest.mark.parametrize("text", ["[]", "false", "0", "''"])
def test_a_file_of_another_type_is_refused(text: str, tmp_path: Path) -> None:
    """It is not taken for an empty one; nor is it in the configuration of Dask."""
    file = tmp_path / "gate.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=r"the file is .*: expected keys and"):
        GateOptions.read(file)
    says = pytest.raises(InputError, match=r"the value is .*: expected keys and values")
    with dask.config.set(slotwise=yaml.safe_load(text)), says:
        GateOptions.configured()


@pytest.mark.parametrize(
    ("threads", "seconds", "ahead"),
    [(4, 0.0, 4), (4, 0.005, 4), (4, 0.02, 2), (1, 0.1, 1), (16, 0.1, 2), (4, 0.5, 0)],
)
def test_workers_have_more_tasks_ahead_if_these_are_short(
    threads: int, seconds: float, ahead: int
) -> None:
    """As many as end during the delay of a message; none where little is gained."""
    assert ahead_of(threads, seconds) == ahead


class RecordingClient:
    """A client that keeps the gate instead of installing it."""

    def run_on_scheduler(self, *given: Any) -> bool:
        """There is no gate yet."""
        return False

    def register_plugin(self, gate: Any, name: str) -> None:
        """Keep the gate."""
        self.gate = gate


@pytest.mark.parametrize("stated", ["tardiness", Objective("tardiness", "sum")])
def test_an_objective_in_any_form(stated: object) -> None:
    """The name of a penalty, or an `Objective`."""
    client = RecordingClient()
    install(client, objective=stated)
    assert client.gate.options.objective == Objective("tardiness")


def test_a_part_of_the_cluster_is_refused() -> None:
    """The workers of a Dask cluster come and go."""
    with pytest.raises(InputError, match="pool 'a': a share is a part of the cluster"):
        GateOptions.of_mapping({"pools": {"a": {"slots_max": "50%"}}})


def test_an_annotation_with_a_duration() -> None:
    """A deadline may be stated as a duration."""
    assert GateOptions().submitter("client", {"deadline": "5m"}).deadline == 300.0


def test_pools_that_are_no_list_are_refused() -> None:
    """Before the cluster is asked for anything."""
    with pytest.raises(
        InputError, match=r"^pools is 'x': expected a list of pools, or pools by name"
    ):
        install(None, pools="x")


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({"scheduler": "fair"}, 0.01),
        ({"scheduler": "flex"}, 0.01),
        ({"scheduler": "flex", "objective": "tardiness"}, 0.05),
        ({"scheduler": "flowflex"}, 0.05),
    ],
)
def test_allocators_that_search_are_asked_less_often(
    options: dict[str, Any], seconds: float
) -> None:
    """Until the next allocation, a stage that begins gets only what the last one left over."""
    header = header_of(GateOptions.of_mapping(options))
    assert header.scheduler["rest_seconds"] == seconds
