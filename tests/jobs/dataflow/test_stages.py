"""Stages: groups, bundles and their order, on the paper's cases and on random graphs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings

from random_dataflows import dataflows, itself
from slotwise import Cluster, Dataflow, Host, InputError
from slotwise.jobs.dataflow.nodes import RUNNING, Channel, Graph, NodeCopy
from slotwise.jobs.dataflow.planning import check_fits
from slotwise.jobs.dataflow.stages import StagedGraph, derive
from tiers import examples

Edge = tuple[NodeCopy, NodeCopy, Channel]


def one(a: Iterator[int]) -> Iterator[int]:
    """A node with one input."""
    return a


def two(a: Iterator[int], b: Iterator[int]) -> Iterator[int]:
    """A node with two inputs."""
    yield from a
    yield from b


def begin() -> Iterator[int]:
    """A node without inputs."""
    yield 1


def derived(flow: Dataflow) -> StagedGraph:
    """The stages of a dataflow."""
    return derive(flow.graph())


def shapes(staged: StagedGraph) -> dict[str, list[str]]:
    """The groups of each stage as text."""
    return {
        stage.name: [" ".join(map(str, group)) for group in stage.groups]
        for stage in staged.stages
    }


def edges(graph: Graph) -> Iterator[Edge]:
    """All pairs of copies that a channel connects, with the channel."""
    for channel in graph.channels:
        if channel.kind != "direct":
            for writer in range(graph.nodes[channel.writer].copies):
                for reader in graph.readers(channel, writer):
                    yield (
                        NodeCopy(channel.writer, writer),
                        NodeCopy(channel.reader, reader),
                        channel,
                    )


def components(copies: list[NodeCopy], pairs: list[Edge]) -> set[frozenset[NodeCopy]]:
    """The connected parts, found without the code under test."""
    part = {copy: {copy} for copy in copies}
    for a, b, _ in pairs:
        if part[a] is not part[b]:
            part[a] |= part[b]
            for copy in part[b]:
                part[copy] = part[a]
    return {frozenset(members) for members in part.values()}


def test_shared_memory_makes_groups_of_copies() -> None:
    """Copy i of two nodes joined by shared memory is a group; equal groups are one phase."""
    flow = Dataflow()
    writer = flow.node(begin, name="a", copies=3)
    flow.node(one, writer.shm(), name="b")
    staged = derived(flow)
    assert shapes(staged) == {"a+b": ["a[0] b[0]", "a[1] b[1]", "a[2] b[2]"]}
    (stage,) = staged.stages
    assert (stage.gang, stage.slots) == (False, 2)


def test_one_reader_of_shared_memory_makes_one_group() -> None:
    """All copies that write to one reader run on its host."""
    flow = Dataflow()
    writer = flow.node(begin, name="a", copies=3)
    flow.node(one, writer.shm(), name="b", copies=1)
    staged = derived(flow)
    assert shapes(staged) == {"a+b": ["a[0] a[1] a[2] b[0]"]}
    assert (staged.stages[0].gang, staged.stages[0].slots) == (False, 4)


def test_tcp_joins_groups_into_a_bundle() -> None:
    """Groups between which TCP channels run start together: a gang."""
    flow = Dataflow()
    a = flow.node(begin, name="a", copies=2)
    b = flow.node(one, a.shm(), name="b")
    flow.node(one, b.tcp(by=itself), name="c", copies=2)
    staged = derived(flow)
    assert shapes(staged) == {"a+b+c": ["a[0] b[0]", "a[1] b[1]", "c[0]", "c[1]"]}
    assert (staged.stages[0].gang, staged.stages[0].slots) == (True, 2)


def test_copies_paired_by_tcp_are_bundles_of_their_own() -> None:
    """Copy i needs only copy i, so each pair is a gang for itself."""
    flow = Dataflow()
    a = flow.node(begin, name="a", copies=2)
    b = flow.node(one, a.tcp(), name="b", copies=2)
    flow.node(one, b, name="c", copies=2)
    flow.node(one, b, name="d")
    staged = derived(flow)
    assert shapes(staged) == {
        "a+b[0]": ["a[0]", "b[0]"],
        "a+b[1]": ["a[1]", "b[1]"],
        "c": ["c[0]", "c[1]"],
        "d": ["d[0]"],
    }
    assert [stage.gang for stage in staged.stages] == [True, True, False, False]
    assert staged.by_name["c"].after == {"a+b[0]", "a+b[1]"}


def test_paired_bundles_wait_only_for_the_bundle_with_their_number() -> None:
    """A file channel from copy i to copy i between bundles of copies orders these alone."""
    flow = Dataflow()
    a = flow.node(begin, name="a", copies=2)
    b = flow.node(one, a.tcp(), name="b", copies=2)
    c = flow.node(one, b, name="c", copies=2)
    flow.node(one, c.tcp(), name="d", copies=2)
    staged = derived(flow)
    assert {stage.name: set(stage.after) for stage in staged.stages} == {
        "a+b[0]": set(),
        "a+b[1]": set(),
        "c+d[0]": {"a+b[0]"},
        "c+d[1]": {"a+b[1]"},
    }


def test_files_order_stages() -> None:
    """Figure 1 of the paper: file channels around a group of shared memory."""
    flow = Dataflow()
    a = flow.node(begin, name="a", copies=2)
    b = flow.node(one, a, name="b", copies=2)
    c = flow.node(one, b.shm(), name="c")
    flow.node(one, c, name="d")
    staged = derived(flow)
    assert {stage.name: set(stage.after) for stage in staged.stages} == {
        "a": set(),
        "b+c": {"a"},
        "d": {"b+c"},
    }


def test_a_source_that_is_read_directly_takes_no_slot() -> None:
    """The reader reads the input; over another kind of channel the source runs."""
    flow = Dataflow()
    values = flow.values(range(4), copies=2)
    flow.node(one, values, name="a")
    assert shapes(derived(flow)) == {"a": ["a[0]", "a[1]"]}
    flow.node(one, values.shm(), name="b")
    assert shapes(derived(flow)) == {
        "values+b": ["values[0] b[0]", "values[1] b[1]"],
        "a": ["a[0]", "a[1]"],
    }


def test_work_is_stated_or_estimated_from_bytes() -> None:
    """A group takes as long as its longest copy."""
    flow = Dataflow()
    a = flow.node(begin, name="a", work=5.0)
    flow.node(one, a.shm(), name="b", work=7.0)
    assert derived(flow).stages[0].work == (7.0,)
    flow = Dataflow()
    a = flow.node(one, flow.values([bytes(20_000_000)]), name="a")
    flow.node(one, a.file(by=len), name="b", copies=2)
    assert [stage.work[0] for stage in derived(flow).stages] == pytest.approx([1.0, 0.5], 1e-3)


def test_only_channels_on_circles_spill() -> None:
    """A chain of bounded channels cannot stop; a node that is reached by two ways could."""
    flow = Dataflow()
    a = flow.node(begin, name="a")
    b = flow.node(one, a.tcp(), name="b")
    c = flow.node(one, a.shm(), name="c")
    flow.node(one, flow.node(two, b.tcp(), c.tcp(), name="d").tcp(), name="e")
    spills = {(c.writer, c.reader): c.spills for c in derived(flow).graph.channels}
    assert spills == {
        ("a", "b"): True,
        ("a", "c"): True,
        ("b", "d"): True,
        ("c", "d"): True,
        ("d", "e"): False,
    }


def test_a_file_channel_inside_a_bundle_is_refused() -> None:
    """Its reader would wait for a writer that runs at the same time."""
    flow = Dataflow()
    a = flow.node(begin, name="a")
    b = flow.node(one, a.tcp(), name="b")
    flow.node(two, b.shm(), a, name="c")
    with pytest.raises(InputError) as refused:
        derived(flow)
    assert str(refused.value) == (
        "the file channel from a to c lies inside a bundle: a, b, c run at the same time,"
        " because tcp or shm channels join them, but c would start only when a is done; make"
        " this channel tcp or shm too, or one of the others file"
    )


def test_bundles_that_wait_for_each_other_are_refused() -> None:
    """A file channel that leaves a bundle and comes back to it by a detour."""
    flow = Dataflow()
    a = flow.node(begin, name="a")
    b = flow.node(one, a, name="b")
    flow.node(two, a.tcp(), b, name="c")
    with pytest.raises(InputError) as refused:
        derived(flow)
    assert str(refused.value) == (
        "bundles wait for each other's files in a circle: a+c -> b -> a+c; nodes joined by +"
        " run at the same time, because tcp or shm channels join them; make one of these"
        " channels file"
    )


def test_bundles_that_do_not_fit_are_refused() -> None:
    """A group needs one host with its slots, and a bundle room for all of its groups."""
    flow = Dataflow()
    a = flow.node(begin, name="a", copies=2)
    b = flow.node(one, a.shm(), name="b", copies=1)
    (stage,) = derived(flow).stages
    cluster = Cluster((Host("h1", {"task": 2}), Host("h2", {"task": 2})))
    with pytest.raises(InputError) as refused:
        check_fits(stage, cluster)
    assert str(refused.value) == (
        "a[0], a[1], b[0] run on one host, because shm channels join them, and need 3 slots;"
        " the largest host, 'h1', has 2: make one of these channels tcp or file, or give nodes"
        " fewer copies"
    )
    flow.node(one, b.tcp(), name="c", copies=1)
    (stage,) = derived(flow).stages
    with pytest.raises(InputError) as refused:
        check_fits(stage, Cluster.of_slots(5))
    assert str(refused.value) == (
        "the bundle of a, b, c starts together, because tcp channels join them: 2 groups,"
        " each in the slots of the largest one, 3; the cluster holds 1 of them: make a"
        " channel file, or give nodes fewer copies"
    )
    check_fits(stage, Cluster.of_slots(6))


@given(flow=dataflows())
@hypothesis_settings(max_examples=examples(40, slow=3000), deadline=None)
def test_stages_follow_from_channels(flow: Dataflow) -> None:
    """Groups and bundles are the parts that shared memory, and TCP with it, connect."""
    graph = flow.graph()
    try:
        staged = derive(graph)
    except InputError:
        assume(False)
        raise
    copies = [
        NodeCopy(name, copy)
        for name, node in graph.nodes.items()
        if graph.runs(name)
        for copy in range(node.copies)
    ]
    pairs = list(edges(graph))
    groups = [frozenset(group) for stage in staged.stages for group in stage.groups]
    assert sorted(copy for group in groups for copy in group) == sorted(copies)
    joined = [edge for edge in pairs if edge[2].kind == "shm"]
    assert set(groups) == components(copies, joined)
    running = [edge for edge in pairs if edge[2].kind in RUNNING]
    bundles = set[frozenset[NodeCopy]]()
    for stage in staged.stages:
        together = [frozenset().union(*stage.groups)] if stage.gang else stage.groups
        bundles.update(map(frozenset, together))
        assert stage.gang == (len(stage.groups) > 1 and len(together) == 1)
    assert bundles == components(copies, running)
    place = {stage.name: number for number, stage in enumerate(staged.stages)}
    for writer, reader, channel in pairs:
        one, other = staged.tasks[writer][0], staged.tasks[reader][0]
        if channel.kind == "file":
            assert place[one] < place[other]
            assert one in staged.by_name[other].after
    waited = {(staged.tasks[a][0], staged.tasks[b][0]) for a, b, c in pairs if c.kind == "file"}
    assert waited == {(one, stage.name) for stage in staged.stages for one in stage.after}


@given(flow=dataflows(nodes_most=5))
@hypothesis_settings(max_examples=examples(25, slow=2000), deadline=None)
def test_exactly_the_channels_on_circles_spill(flow: Dataflow) -> None:
    """A channel spills if its ends stay connected without one of its pairs of copies."""
    graph = flow.graph()
    try:
        staged = derive(graph)
    except InputError:
        assume(False)
        raise
    running = [edge for edge in edges(graph) if edge[2].kind in RUNNING]
    copies = sorted({copy for edge in running for copy in edge[:2]})
    expected = set()
    for place, (writer, reader, channel) in enumerate(running):
        without = running[:place] + running[place + 1 :]
        parts = components(copies, without)
        if any(writer in part and reader in part for part in parts):
            expected.add(channel.number)
    assert {c.number for c in staged.graph.channels if c.spills} == expected


@given(flow=dataflows())
@hypothesis_settings(max_examples=examples(25, slow=2000), deadline=None)
def test_exactly_the_circles_of_waiting_are_refused(flow: Dataflow) -> None:
    """A graph is refused if a node must be done before a node that runs together with it."""
    graph = flow.graph()
    before: dict[str, set[str]] = {name: {name} for name in graph.nodes}
    waits = set[tuple[str, str]]()
    for _ in graph.nodes:  # What must have begun when a node begins, and what must be done.
        for channel in graph.channels:
            a, b = channel.writer, channel.reader
            if channel.kind in RUNNING:
                before[a] = before[b] = before[a] | before[b]
            elif channel.kind == "file":
                before[b] = before[b] | before[a]
                waits.add((a, b))
    is_refused = any(b in before[a] for a, b in waits)
    try:
        derive(graph)
    except InputError:
        assert is_refused
    else:
        assert not is_refused
