"""Flows share the network fairly, arrive whole, and end when they should."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.max_min import max_min_rates
from slotwise.backends.simulated import network as network_module
from slotwise.backends.simulated.network import FlowNetwork, Links, Way
from slotwise.core.cluster import Cluster, Host, Network
from tiers import examples

HOSTS = tuple(f"{rack}{host}" for rack in "ab" for host in (1, 2, 3))
CLUSTER = Cluster(tuple(Host(name, {"task": 1}, rack=name[0]) for name in HOSTS))


def flowing(network: Network, *flows: tuple[str, str, float]) -> FlowNetwork:
    """A network in which flows (source, target, bytes) started at 0, named 0, 1, ..."""
    fluid = FlowNetwork(CLUSTER, network)
    for key, (source, target, size) in enumerate(flows):
        fluid.start(0.0, key, source, target, size)
    return fluid


@pytest.mark.parametrize(
    ("network", "target", "rate"),
    [
        (Network(host=10, rack=7, core=5), "a2", 10.0),
        (Network(host=10, rack=7, core=5), "b1", 5.0),
        (Network(host=10, rack=7), "b1", 7.0),
        (Network(host=10), "b1", 10.0),
        (Network(rack=7), "b1", 7.0),
    ],
)
def test_a_lone_flow_runs_at_its_bottleneck(network: Network, target: str, rate: float) -> None:
    """The narrowest link that it passes."""
    fluid = flowing(network, ("a1", target, 35.0))
    assert fluid.rate(0) == rate
    assert fluid.next_end() == (35.0 / rate, 0)
    assert fluid.advance(35.0 / rate) == [0]
    assert fluid.next_end() is None


def test_two_equal_flows_share() -> None:
    """Each has half, and both end at one instant, in the order of their starts."""
    fluid = flowing(Network(host=10), ("a1", "a2", 50.0), ("a1", "b1", 50.0))
    assert (fluid.rate(0), fluid.rate(1)) == (5.0, 5.0)
    assert fluid.advance(10.0) == [0, 1]


def test_a_flow_limited_elsewhere_leaves_the_rest_to_others() -> None:
    """Max-min, not equal parts: what the core slows down leaves the host to the other."""
    fluid = flowing(Network(host=10, core=2), ("a1", "b1", 9.0), ("a1", "a2", 9.0))
    assert (fluid.rate(0), fluid.rate(1)) == (2.0, 8.0)


def test_a_flow_speeds_up_when_another_one_ends() -> None:
    """10 bytes a second: both at 5 until 2.0, when the small one is through; then all of it."""
    fluid = flowing(Network(host=10), ("a1", "a2", 30.0), ("a1", "a3", 10.0))
    assert fluid.advance(2.0) == [1]
    assert fluid.rate(0) == 10.0
    assert fluid.next_end() == (4.0, 0)
    assert fluid.advance(9.0) == [0]


def test_a_stopped_flow_leaves_its_part_to_others() -> None:
    """The bytes that had arrived are returned."""
    fluid = flowing(Network(host=10), ("a1", "a2", 30.0), ("a1", "a3", 10.0))
    assert fluid.stop(1.0, 1) == 5.0
    assert fluid.rate(0) == 10.0
    assert fluid.next_end() == (3.5, 0)


def test_an_empty_flow_takes_no_time() -> None:
    """On one host, of no bytes, or without limits: the flow ends as it begins."""
    fluid = flowing(Network(host=10), ("a1", "a1", 30.0), ("a1", "a2", 0.0))
    assert fluid.next_end() == (0.0, 0)
    assert fluid.advance(0.0) == [0, 1]
    assert flowing(Network(), ("a1", "b1", 30.0)).advance(0.0) == [0]


def test_flows_from_outside_pass_the_core() -> None:
    """A source that is no host of the cluster."""
    fluid = flowing(Network(host=10, core=4), ("elsewhere", "a1", 8.0))
    assert fluid.advance(2.0) == [0]
    assert fluid.traffic().core_bytes == 8.0


def test_a_flow_from_several_hosts_ends_with_its_last_part() -> None:
    """Half of it from a host that sends to another one, too."""
    fluid = FlowNetwork(CLUSTER, Network(host=10))
    fluid.start(0.0, "other", "a1", "b1", 100.0)
    fluid.start(0.0, "copy", ["a1", "a2"], "a3", 20.0)
    assert fluid.rate("copy") == 10.0
    assert fluid.next_end() == (2.0, "copy")
    assert fluid.advance(2.0) == ["copy"]
    assert fluid.rate("other") == 10.0


def test_parts_of_one_flow_end_separately() -> None:
    """It is over when the slower part has arrived."""
    fluid = FlowNetwork(CLUSTER, Network(host=10, core=2))
    fluid.start(0.0, "copy", ["b1", "a2"], "a3", 20.0)
    assert fluid.advance(4.0) == []
    assert fluid.next_end() == (5.0, "copy")
    assert fluid.advance(5.0) == ["copy"]
    assert (fluid.traffic().rack_bytes, fluid.traffic().core_bytes) == (10.0, 10.0)


def test_traffic_is_counted_and_drawn() -> None:
    """Bytes within racks and through the core, up to now, and the rates over time."""
    fluid = flowing(Network(host=10, core=2), ("a1", "b1", 9.0), ("a1", "a2", 16.0))
    fluid.advance(3.0)
    traffic = fluid.traffic()
    assert (traffic.rack_bytes, traffic.core_bytes) == (16.0, 6.0)
    fluid.stop(4.0, 0)
    fluid.advance(5.0)
    traffic = fluid.traffic()
    assert (traffic.rack_bytes, traffic.core_bytes) == (16.0, 8.0)
    assert traffic.times == (0.0, 2.0, 4.0)
    assert (traffic.rack, traffic.core) == ((8.0, 0.0, 0.0), (2.0, 2.0, 0.0))


def test_flows_of_a_host_are_counted() -> None:
    """To find the copy from which least is read."""
    fluid = flowing(Network(host=10), ("a1", "b1", 9.0), ("a1", "a2", 9.0))
    assert (fluid.leaving("a1"), fluid.leaving("a2"), fluid.leaving("x")) == (2, 0, 0)


def test_paths_pass_the_right_links() -> None:
    """Two links in a rack, five between racks, and none without a limit."""
    links = Links(CLUSTER, Network(1, 2, 3))

    def capacities(source: str, target: str) -> list[float]:
        return [links.capacity[link] for link in links.path(source, target)[0]]

    assert capacities("a1", "a2") == [1, 1]
    assert capacities("a1", "b2") == [1, 2, 3, 2, 1]
    assert capacities("x", "b2") == [3, 2, 1]
    assert links.path("a1", "a1") == ((), Way.HOST)
    assert Links(CLUSTER, Network(core=3)).path("a1", "b2")[0] == (
        links.path("a1", "b2")[0][2],
    )


speeds = st.sampled_from([1.0, 4.0, 7.0, inf])
flow_starts = st.tuples(
    st.sampled_from([0.0, 0.0, 1.0, 2.5]),
    st.sampled_from([*HOSTS, "x"]) | st.lists(st.sampled_from(HOSTS), min_size=1, max_size=3),
    st.sampled_from(HOSTS),
    st.sampled_from([0, 1, 12]) | st.integers(1, 99),
)
few_or_many = st.sampled_from([0, 3, 24])


@dataclass
class Watched:
    """A network whose rates are checked whenever they may have changed."""

    network: Network
    fluid: FlowNetwork
    at: float = 0.0
    flows: dict[Hashable, tuple[list[str], str, float]] = field(default_factory=dict)
    got: dict[Hashable, float] = field(default_factory=dict)
    over: dict[Hashable, float] = field(default_factory=dict)

    def start(self, at: float, key: int, sources: str | list[str], to: str, size: int) -> None:
        """Begin a flow, after all that comes before it."""
        self.go(at)
        self.fluid.start(at, key, sources, to, size)
        listed = [sources] if isinstance(sources, str) else sources
        self.flows[key], self.got[key] = (listed, to, size), 0.0

    def go(self, until: float) -> None:
        """From end to end, adding up what the rates make arrive."""
        while self.at < until or until == inf:
            coming = self.fluid.next_end()
            if coming is None and until == inf:
                return
            step = min(until, coming[0] if coming else inf)
            assert step >= self.at, "ends lie ahead"
            self._check_rates()
            for key in self.flows.keys() - self.over.keys():
                self.got[key] += self.fluid.rate(key) * (step - self.at)
            for key in self.fluid.advance(step):
                assert key not in self.over
                self.over[key] = step
            self.at = step

    def _check_rates(self) -> None:
        """No link carries more than it can at any instant."""
        links = Links(CLUSTER, self.network)
        rows = self.fluid._rows
        load = dict.fromkeys(range(len(links.capacity)), 0.0)
        for parts in rows.values():
            for row in parts:
                for link in self.fluid._flows.paths[row]:
                    load[link] += float(self.fluid._flows.rate[row])
        for link, carried in load.items():
            assert carried <= links.capacity[link] * (1 + 1e-9)


@settings(max_examples=examples(15, slow=1000))
@given(speeds, speeds, speeds, st.lists(flow_starts, min_size=1, max_size=12), few_or_many)
def test_every_byte_arrives(
    host: float,
    rack: float,
    core: float,
    starts: list[tuple[float, str | list[str], str, int]],
    few: int,
) -> None:
    """Rates times their time are the bytes of each flow; no link is ever overfull."""
    network = Network(host, rack, core)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network_module, "FEW", few)
        watched = Watched(network, FlowNetwork(CLUSTER, network))
        for key, (at, source, target, size) in enumerate(sorted(starts, key=lambda s: s[0])):
            watched.start(at, key, source, target, size)
        watched.go(inf)
    assert watched.over.keys() == watched.flows.keys()
    by_way = dict.fromkeys(Way, 0.0)
    links = Links(CLUSTER, network)
    for key, (sources, target, size) in watched.flows.items():
        limited = [one for one in sources if links.path(one, target)[0]]
        due = size * len(limited) / len(sources)
        assert watched.got[key] == pytest.approx(due, rel=1e-9, abs=1e-9)
        for one in sources:
            by_way[links.path(one, target)[1]] += size / len(sources)
    traffic = watched.fluid.traffic()
    assert traffic.rack_bytes == pytest.approx(by_way[Way.RACK])
    assert traffic.core_bytes == pytest.approx(by_way[Way.CORE])


@settings(max_examples=examples(15, slow=1000))
@given(
    speeds,
    speeds,
    speeds,
    st.lists(
        st.tuples(st.sampled_from([*HOSTS, "x"]), st.sampled_from(HOSTS), st.booleans()),
        min_size=1,
        max_size=9,
    ),
    few_or_many,
)
def test_rates_stay_max_min_fair_as_flows_come_and_go(
    host: float,
    rack: float,
    core: float,
    changes: list[tuple[str, str, bool]],
    few: int,
) -> None:
    """After each start or stop all rates are those of linear programmes, recomputed or not."""
    network = Network(host, rack, core)
    links, fluid = Links(CLUSTER, network), FlowNetwork(CLUSTER, network)
    flows: dict[Hashable, tuple[int, ...]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network_module, "FEW", few)
        for key, (source, target, stops) in enumerate(changes):
            path = links.path(source, target)[0]
            if not path:
                continue
            fluid.start(key / 8, key, source, target, 1e6)
            flows[key] = path
            if stops:
                oldest = next(iter(flows))
                fluid.stop(key / 8, oldest)
                del flows[oldest]
            finite = [c if c < inf else 1e9 for c in links.capacity]
            expected = max_min_rates(list(flows.values()), finite) if flows else []
            assert [fluid.rate(k) for k in flows] == pytest.approx(expected, rel=1e-6)


@settings(max_examples=examples(15, slow=1000))
@given(st.lists(flow_starts, min_size=2, max_size=12))
def test_the_same_flows_end_the_same(
    starts: list[tuple[float, str | list[str], str, int]],
) -> None:
    """To the last bit, and in the same order."""
    ends = []
    for _ in range(2):
        watched = Watched(Network(4, 7, 9), FlowNetwork(CLUSTER, Network(4, 7, 9)))
        for key, (at, source, target, size) in enumerate(sorted(starts, key=lambda s: s[0])):
            watched.start(at, key, source, target, size)
        watched.go(inf)
        ends.append(list(watched.over.items()))
        assert [end for _, end in ends[-1]] == sorted(end for _, end in ends[-1])
    assert ends[0] == ends[1]
