"""Dataflow jobs on hosts with folders and addresses of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import slotwise
from agent_processes import Loopback, files_named
from backends.local.calling import TIMEOUT
from certificates import make_certificate
from dataflow_nodes import (
    compared,
    doubled,
    dying_once,
    failing_once,
    itself,
    links,
    marked_slowly,
    marks,
    number_of,
    padded,
    reached_at,
    total,
    waiting,
)
from random_dataflows import check, dataflows, written
from slotwise.backends.agents.backend import AgentsBackend
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Decision, Launch
from slotwise.core.errors import InputError
from slotwise.core.events import Event, HostRemoved, OutputLost, TaskFailed, TaskFinished
from slotwise.core.loop import run
from slotwise.core.state import State
from slotwise.jobs.dataflow.planning import check_fits, plan_dataflow
from slotwise.jobs.dataflow.stages import derive
from slotwise.jobs.work_folder import sweep
from slotwise.policy.scheduler import make_scheduler
from tiers import examples

CLUSTER = Cluster(tuple(Host(name, {"task": 4}) for name in "abc"))
SMALL = Cluster(tuple(Host(name, {"task": 1}) for name in "abc"))

Hear = Callable[[list[Event], list[Decision]], None]


class Scene:
    """Runs dataflows on agents, each of which has a folder of its own; nothing is left there.

    hosts  of the last attempt of each task, by phase and number
    """

    def __init__(
        self, folder: Path, cluster: Cluster = SMALL, tls: Mapping[str, str] | None = None
    ) -> None:
        self._folder, self._cluster = folder, cluster
        self.loopback = Loopback(cluster, folder / "hosts", tls)
        self.hosts: dict[tuple[str, int], str] = {}
        self.events: list[Event] = []

    def run(
        self,
        *flows: slotwise.Dataflow,
        on_turn: Hear = lambda events, decisions: None,
        failures: int = 0,
    ) -> None:
        """Run them at the same time; the first writes to the folder out-0.

        So many attempts fail.
        """
        jobs = [
            plan_dataflow(f"job-{number}", flow, self.output(number))
            for number, flow in enumerate(flows)
        ]
        state = State(self._cluster)

        def record(now: float, events: list[Event], decisions: list[Decision]) -> None:
            self.events += events
            for one in decisions:
                if isinstance(one, Launch):
                    self.hosts[one.phase.phase, one.task] = one.host
            on_turn(events, decisions)
            state.check()

        connected = self.loopback.connect()
        with AgentsBackend(jobs, self.loopback, connected, grace=60) as backend:
            run(make_scheduler("fair"), backend, state, record)
        failed = [event for event in self.of(TaskFailed) if not event.lost]
        assert len(failed) == failures
        for host in self._cluster.by_name:  # As the next agent does after one that was killed.
            sweep(self._folder / "hosts" / host)
        assert self.left() == []

    def output(self, number: int = 0) -> Path:
        """The folder of the output of a job."""
        return self._folder / f"out-{number}"

    def left(self) -> list[Path]:
        """The files on all hosts."""
        return [path for path in (self._folder / "hosts").rglob("*") if not path.is_dir()]

    def of(self, kind: type) -> Sequence[Event]:
        """The events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Three hosts with a slot each."""
    return Scene(tmp_path)


@pytest.fixture(params=["token", "tls"])
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, str] | None:
    """The certificate that all agents have, or none."""
    return make_certificate(tmp_path) if request.param == "tls" else None


def fits(flow: slotwise.Dataflow) -> bool:
    """Whether a dataflow is not refused, and fits on the hosts."""
    try:
        for stage in derive(flow.graph()).stages:
            check_fits(stage, CLUSTER)
    except InputError:
        return False
    return True


@settings(max_examples=examples(1, slow=30), suppress_health_check=list(HealthCheck))
@given(flows=st.lists(dataflows().filter(fits), min_size=5, max_size=5))
def test_random_dataflows_write_what_their_evaluations_give(
    flows: list[slotwise.Dataflow], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With every kind of channel and route."""
    scene = Scene(tmp_path_factory.mktemp("random"), CLUSTER)
    scene.run(*flows)
    for number, flow in enumerate(flows):
        check(derive(flow.graph()), scene.output(number))


def files(*, sort: bool = False, broadcast: bool = False) -> slotwise.Dataflow:
    """Three copies whose files of some megabytes three others read."""
    flow = slotwise.Dataflow()
    numbers = flow.values(range(600, 0, -1), copies=3)
    made = flow.node(marked_slowly, numbers)
    way = made.file(broadcast=True) if broadcast else made.file(by=number_of, sort=sort)
    flow.write(flow.node(marks, way, copies=3))
    return flow


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", ["hash", "sort", "broadcast"])
def test_files_are_fetched_from_the_hosts_that_wrote_them(way: str, scene: Scene) -> None:
    """Every host has only what its own groups wrote; their own part, or all of it."""
    flow = files(sort=way == "sort", broadcast=way == "broadcast")
    scene.run(flow)
    check(derive(flow.graph()), scene.output())
    writers = {host for (phase, _), host in scene.hosts.items() if phase == "marked_slowly"}
    assert len(writers) == 3
    assert not scene.of(TaskFailed)


@pytest.mark.slow
def test_copies_of_files_are_removed_once_they_are_read(scene: Scene, tmp_path: Path) -> None:
    """They are on disk twice no longer than needed."""
    ended: list[int] = []

    def on_turn(events: list[Event], decisions: list[Decision]) -> None:
        for event in events:
            if isinstance(event, TaskFinished) and event.phase.phase == "marks":
                ended.append(event.task)
                for host in (0, 1):
                    name = f"fetched-1-{event.task}-{host}"
                    assert not files_named(tmp_path / "hosts", name)

    scene.run(files(), on_turn=on_turn)
    assert sorted(ended) == [0, 1, 2]


@pytest.mark.slow
def test_a_group_that_fails_leaves_no_files(scene: Scene, tmp_path: Path) -> None:
    """Its host removes them at once, not only when the job is over."""
    (tmp_path / "marker").touch()
    failed, left = list[bool](), list[Path]()

    def on_turn(events: list[Event], decisions: list[Decision]) -> None:
        if any(isinstance(event, TaskFailed) for event in events):
            found = files_named(tmp_path / "hosts", "channel-1-0")
            left.extend(path for path in found if path.parent.name == "0-0-1")
            failed.append(True)

    flow, parameters = slotwise.Dataflow(), {"marker": str(tmp_path / "marker")}
    made = flow.node(failing_once, flow.values(range(9)), parameters=parameters)
    flow.write(flow.node(total, made))
    scene.run(flow, on_turn=on_turn, failures=1)
    assert (failed, left) == ([True], [])
    assert written(scene.output()) == ["36\n"]


@pytest.mark.sampled(2)
def test_gangs_meet_at_the_addresses_of_their_hosts(
    tmp_path: Path, tls: Mapping[str, str] | None
) -> None:
    """Each reader listens at its own host, and is told of by notes at one of them."""
    scene = Scene(tmp_path, tls=tls)
    flow = slotwise.Dataflow()
    numbers = flow.node(doubled, flow.values(range(100)))
    flow.write(flow.node(reached_at, numbers.tcp(broadcast=True), copies=2))
    scene.run(flow)
    assert len(set(scene.hosts.values())) == 3
    lines = [part.split() for part in written(scene.output())]
    assert len(lines) == 2
    for here, reached, found in lines:
        assert here == reached != "127.0.0.1"
        assert found == "9900"
    assert lines[0][0] != lines[1][0]


def test_a_host_that_is_lost_takes_its_files_with_it(scene: Scene) -> None:
    """Its agent is killed when all files are written; they are made again elsewhere."""
    done: list[int] = []

    def on_turn(events: list[Event], decisions: list[Decision]) -> None:
        before = len(done)
        done.extend(event.task for event in events if isinstance(event, TaskFinished))
        if before < 3 <= len(done):
            scene.loopback.agents[scene.hosts["marked_slowly", done[0]]].kill()

    flow = files()
    scene.run(flow, on_turn=on_turn)
    check(derive(flow.graph()), scene.output())
    assert len(scene.of(HostRemoved)) == 1
    assert any(done[0] in event.tasks for event in scene.of(OutputLost))


def test_files_that_disappear_are_made_again(scene: Scene, tmp_path: Path) -> None:
    """All that are missing on a host that is there; readers there and elsewhere notice."""
    gone: list[int] = []

    def on_turn(events: list[Event], decisions: list[Decision]) -> None:
        finished = [event.task for event in events if isinstance(event, TaskFinished)]
        for task in finished:
            for path in files_named(tmp_path / "hosts", f"channel-1-{task}"):
                if len(gone) < 2:
                    path.unlink()
                    gone.append(task)

    flow = slotwise.Dataflow()
    made = flow.node(marked_slowly, flow.values(range(60), copies=6))
    flow.write(flow.node(marks, made.file(by=number_of), copies=3))
    scene.run(flow, on_turn=on_turn)
    check(derive(flow.graph()), scene.output())
    assert len(gone) == 2
    assert {task for event in scene.of(OutputLost) for task in event.tasks} == set(gone)


def gang(marker: Path) -> slotwise.Dataflow:
    """Three groups joined by TCP; the process of the second ends while there is a marker."""
    flow = slotwise.Dataflow()
    numbers = flow.node(doubled, flow.values(range(100_000)))
    middle = flow.node(dying_once, numbers.tcp(), parameters={"marker": str(marker)})
    flow.write(flow.node(total, middle.tcp()))
    return flow


@pytest.mark.slow
def test_a_gang_whose_group_is_killed_meets_again(
    tmp_path: Path, tls: Mapping[str, str] | None
) -> None:
    """Notes of the attempt before do not count, and neither does the half of a stream."""
    scene = Scene(tmp_path, tls=tls)
    (tmp_path / "marker").touch()
    flow = gang(tmp_path / "marker")
    scene.run(flow)
    assert scene.of(TaskFailed)
    check(derive(flow.graph()), scene.output())


@pytest.mark.slow
def test_a_gang_whose_host_is_lost_meets_elsewhere(
    tmp_path: Path, tls: Mapping[str, str] | None
) -> None:
    """The host on which its groups met is not there any more."""
    scene = Scene(tmp_path, Cluster(tuple(Host(name, {"task": 1}) for name in "abcd")), tls)
    lost: list[str] = []

    def on_turn(events: list[Event], decisions: list[Decision]) -> None:
        if not lost and (found := files_named(tmp_path / "hosts", "note-2-0")):
            lost.append(found[0].relative_to(tmp_path / "hosts").parts[0])
            scene.loopback.agents[lost[0]].kill()

    flow = slotwise.Dataflow()
    numbers = flow.node(marked_slowly, flow.values(range(200)))
    again = flow.node(marks, numbers.tcp())
    flow.write(flow.node(itself, again.tcp()))
    flow.write(flow.node(waiting))  # Its end is an event before that of the gang.
    scene.run(flow, on_turn=on_turn)
    assert lost
    assert len(scene.of(HostRemoved)) == 1
    check(derive(flow.graph()), scene.output())


@pytest.mark.sampled(2)
def test_all_links_between_hosts_have_tls_where_the_cluster_has(
    tmp_path: Path, tls: Mapping[str, str] | None
) -> None:
    """The middle one of three groups looks at the connections that it has."""
    flow = slotwise.Dataflow()
    numbers = flow.node(doubled, flow.values(range(100)))
    flow.write(flow.node(itself, flow.node(links, numbers.tcp()).tcp()))
    scene = Scene(tmp_path, tls=tls)
    scene.run(flow)
    assert len(set(scene.hosts.values())) == 3
    assert written(scene.output()) == ["0 2 9900\n" if tls else "2 0 9900\n"]


@pytest.mark.sampled(2)
def test_much_passes_between_two_hosts_both_ways(
    tmp_path: Path, tls: Mapping[str, str] | None
) -> None:
    """30 MB come back to the host that has sent them, and are compared with what was sent."""
    flow = slotwise.Dataflow()
    sent = flow.node(padded, flow.values(range(300)))
    back = flow.node(itself, sent.tcp())
    flow.write(flow.node(compared, sent.shm(), back.tcp()))
    scene = Scene(tmp_path, Cluster(tuple(Host(name, {"task": 2}) for name in "ab")), tls)
    scene.run(flow)
    assert set(scene.hosts.values()) == {"a", "b"}
    assert written(scene.output()) == ["300 0\n"]


def test_nothing_is_left_while_agents_go_on(scene: Scene, tmp_path: Path) -> None:
    """The files of a job are removed from hosts when it is over, also its notes."""
    flow, seen = files(), list[Path]()
    state = State(SMALL)
    job = plan_dataflow("job", flow, tmp_path / "out")
    with AgentsBackend([job], scene.loopback, scene.loopback.connect(), grace=60) as backend:

        def on_turn(now: float, events: list[Event], decisions: list[Decision]) -> None:
            seen.extend(files_named(tmp_path / "hosts", "channel-1-1"))

        run(make_scheduler("fair"), backend, state, on_turn)
        until = time.monotonic() + TIMEOUT
        while [path for path in scene.left() if path.name != "lock"]:
            assert time.monotonic() < until
            backend._agents.wait(0.05)  # As in a session, which goes on.
    assert seen


@pytest.mark.slow
def test_files_are_fetched_by_tls(tmp_path: Path) -> None:
    """With the certificates of the cluster."""
    flow = files(broadcast=True)
    scene = Scene(tmp_path, tls=make_certificate(tmp_path))
    scene.run(flow)
    check(derive(flow.graph()), scene.output())
    assert len(set(scene.hosts.values())) == 3
