"""What the page is sent: the state of a scheduler, then what changes, made once for all."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import aclosing, contextmanager
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.conftest import RunningServer
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Decision
from slotwise.core.events import JobArrived, TaskFailed, TaskFinished
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool
from slotwise.core.state import State
from slotwise.policy.scheduler import make_scheduler
from slotwise.service.page import page_stream
from slotwise.service.page.page_source import (
    LANES_MAX,
    ROWS_MAX,
    OwnJob,
    PageSample,
    PageSnapshot,
    SlotAttempt,
    StateReader,
)
from slotwise.service.page.page_stream import Lanes, PageHub, differences
from waiting import PATIENCE, until

ASSETS = Path(str(files("slotwise.service.page"))) / "assets"


# The stream. Its events are applied as the page does it.


class Page:
    """What a page has of the state, by the events of its stream."""

    def __init__(self) -> None:
        self.sections: dict[str, dict[str, Any]] = {}
        self.about: dict[str, Any] = {}
        self.samples: list[float] = []
        self.bars: list[Any] = []
        self.kinds: list[str] = []

    def take(self, event: bytes) -> None:
        """Apply an event."""
        lines = dict(line.split(": ", 1) for line in event.decode().splitlines() if line)
        if "data" not in lines:
            return
        data = json.loads(lines["data"])
        self.kinds.append(lines["event"])
        if lines["event"] == "state":
            self.__init__()  # type: ignore[misc]
            self.kinds.append("state")
            self.about = data["common"]["about"]
        self.samples += data["common"]["samples"]["at"]
        self.bars += data["common"]["bars"]
        for part in data["common"], data["own"]:
            for name, keys in part.get("removed", {}).items():
                for key in keys:
                    del self.sections[name][key]
            for name, values in part["set"].items():
                self.sections.setdefault(name, {}).update(values)


class CountedSource:
    """A source whose facts are the number of questions so far."""

    def __init__(self) -> None:
        self.snapshots = self.samples = 0
        self.asked_of: list[list[str]] = []

    def about(self) -> dict[str, Any]:
        """See `PageSource`."""
        return {"kind": "test", "title": "test", "can": []}

    def sample(self) -> PageSample:
        """See `PageSource`."""
        self.samples += 1
        return PageSample(float(self.samples), {"a": (1, 2.0)}, {})

    def snapshot(self, users: Collection[str]) -> PageSnapshot:
        """See `PageSource`."""
        self.snapshots += 1
        self.asked_of.append(sorted(users))
        count = self.snapshots
        attempt = SlotAttempt("h", 1, f"job-{count}", "a", "p", 0, 1, float(count))
        own = {user: {f"{user}-{count}": {"id": f"{user}-{count}"}} for user in users}
        sections = {"facts": {"count": count, "same": 1}, "pools": {}, "hosts": {}, "live": {}}
        sample = PageSample(1000.0 + count, {"a": (count, 2.0)}, {})
        return PageSnapshot(sample, sections, own, [attempt], {})


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots follow each other at once."""
    monkeypatch.setattr(page_stream, "INTERVAL_SECONDS", 0.01)


async def watched(hub: PageHub, user: str, until: Callable[[Page], bool]) -> Page:
    """A page that reads its stream until it shows something."""
    page = Page()
    async with aclosing(hub.stream(user)) as stream:
        async for event in stream:
            page.take(event)
            if page.sections and until(page):
                break
    return page


def with_hub(source: Any, act: Callable[[PageHub], Any]) -> Any:
    """The result of a function of a hub that runs."""

    async def run() -> Any:
        hub = PageHub(source)
        running = asyncio.create_task(hub.run())
        try:
            return await asyncio.wait_for(act(hub), PATIENCE)
        finally:
            running.cancel()

    return asyncio.run(run())


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("pages", [1, 40])
def test_the_scheduler_is_asked_as_often_for_one_page_as_for_many(pages: int) -> None:
    """Each page sees every snapshot, and nothing is asked when none is open."""
    source = CountedSource()

    async def act(hub: PageHub) -> list[Page]:
        enough = [watched(hub, "ann", lambda p: len(p.kinds) >= 10) for _ in range(pages)]
        found = await asyncio.gather(*enough)
        before = source.snapshots
        await asyncio.sleep(0.2)
        assert source.snapshots <= before + 1  # One may have been under way.
        return list(found)

    found = with_hub(source, act)
    assert 10 <= source.snapshots <= 15
    assert all(page.kinds == ["state"] + ["change"] * 9 for page in found)
    assert source.samples <= 2


@pytest.mark.usefixtures("quick")
def test_each_page_has_the_jobs_of_its_user_only() -> None:
    """Also while others' pages come and leave."""
    source = CountedSource()

    async def act(hub: PageHub) -> tuple[Page, Page]:
        first = asyncio.create_task(watched(hub, "ann", lambda p: len(p.kinds) >= 12))
        await watched(hub, "cleo", lambda p: len(p.kinds) >= 3)
        second = await watched(hub, "bob", lambda p: len(p.kinds) >= 3)
        return await first, second

    ann, bob = with_hub(source, act)
    assert [one.split("-")[0] for one in ann.sections["own"]] == ["ann"]
    assert [one.split("-")[0] for one in bob.sections["own"]] == ["bob"]
    assert ["ann"] in source.asked_of


@pytest.mark.usefixtures("quick")
def test_a_page_that_reads_slowly_misses_nothing() -> None:
    """It gets the changes of all snapshots in between at once; after too many, all again."""
    source = CountedSource()

    async def read(hub: PageHub, missed: int) -> Page:
        page = Page()
        async with aclosing(hub.stream("ann")) as stream:
            while not page.kinds:
                page.take(await anext(stream))
            until = source.snapshots + missed
            while source.snapshots < until:
                await asyncio.sleep(0.01)
            page.take(await anext(stream))
        return page

    async def act(hub: PageHub) -> tuple[Page, Page]:
        return await read(hub, 5), await read(hub, 2 * page_stream.TICKS_MAX)

    some, many = with_hub(source, act)
    assert some.kinds == ["state", "change"]
    assert many.kinds == ["state"]  # The second one.
    counts = [at - 1000 for at in some.samples if at > 1000]
    assert counts == [*range(1, some.sections["facts"]["count"] + 1)]
    assert len(counts) > 5
    assert {bar[3] for bar in some.bars} == {f"job-{n:.0f}" for n in counts[:-1]}


values = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2), max_size=6)
sections = st.fixed_dictionaries({"one": values, "two": values})


@given(sections, sections)
def test_differences_make_the_one_state_the_other(before: Any, after: Any) -> None:
    """And they have no value that was known."""
    found = differences(before, after)
    page = {name: dict(section) for name, section in before.items()}
    for name, keys in found["removed"].items():
        for key in keys:
            del page[name][key]
    for name, section in found["set"].items():
        assert all(before[name].get(key) != value for key, value in section.items())
        page[name].update(section)
    assert page == after


def snapshot(at: float, *running: SlotAttempt, ended: Mapping[Any, str] | None = None) -> Any:
    """A snapshot with these tasks in slots."""
    return PageSnapshot(PageSample(at, {}, {}), {}, {}, running, ended or {})


def test_a_task_keeps_its_slots_and_what_has_ended_is_drawn() -> None:
    """A task of two slots has two rows; how it ended is that of the attempt."""
    wide = SlotAttempt("h", 2, "wide", "a", "p", 0, 1, 1.0)
    first, second = (
        SlotAttempt("h", 1, job, "a", "p", 0, 1, 2.0) for job in ("first", "second")
    )
    lanes = Lanes()
    slots, bars = lanes.place(snapshot(3.0, wide, first))
    assert {lane: one[0] for lane, one in slots.items()} == {
        "h:0": "wide",
        "h:1": "wide",
        "h:2": "first",
    }
    assert not bars
    ended = {("wide", "p", 0, 1): "failed"}
    later, bars = lanes.place(snapshot(5.0, first, second, ended=ended))
    assert {lane: one[0] for lane, one in later.items()} == {"h:2": "first", "h:0": "second"}
    assert [(bar[0], bar[1], bar[3], bar[-1]) for bar in bars] == [
        ("h:0", 1.0, "wide", "failed"),
        ("h:1", 1.0, "wide", "failed"),
    ]
    assert bars[0][2] == 2.0
    assert bars[1][2] == 5.0


# What a snapshot has.


class Scheduled:
    """A state in which a scheduler decides."""

    def __init__(self, slots: int, *pools: Pool, scheduler: str = "fair") -> None:
        host = Host("h", {"task": slots}, resources={"memory": 8 << 30, "gpu": 2})
        self.state = State(Cluster((host,)), pools)
        self._scheduler = make_scheduler(scheduler, objective=Objective("response"))
        self.reader = StateReader(self.state, 1000.0, "held")

    def arrive(self, job: str, pool: str, tasks: int = 1, **about: Any) -> None:
        """A job arrives."""
        phase = Phase("p", Tasks(tasks, work=1.0), **about)
        self.state.apply(JobArrived(0.0, Job(id=job, pool=pool, phases=(phase,))))

    def decide(self, now: float) -> list[Decision]:
        """Apply all decisions at an instant."""
        self.state.at(now)
        made: list[Decision] = []
        while found := self._scheduler.decide(self.state):
            for one in found:
                self.state.apply(one)
            made += found
        return made


def test_a_snapshot_has_the_shares_and_the_queue_of_pools() -> None:
    """Those of a pool that contains others count the jobs below it."""
    run = Scheduled(
        6, Pool("lab", weight=2, slots_min=1), Pool("x", parent="lab"), Pool("dev", slots_max=3)
    )
    for n in range(4):
        run.arrive(f"x{n}", "x", tasks=2)
    run.arrive("d", "dev", tasks=3)
    run.decide(0.0)
    found = run.reader.snapshot({}, "fair")
    pools = found.sections["pools"]
    assert {name: (one["used"], one["least"], one["most"]) for name, one in pools.items()} == {
        "lab": (4, 1, None),
        "x": (4, 0, None),
        "dev": (2, 0, 3),
    }
    assert pools["lab"]["steady"] == 4
    assert pools["dev"]["steady"] == 2
    assert pools["lab"]["share"] == pytest.approx(4)
    assert pools["x"]["parent"] == "lab"
    for name in ("lab", "x"):
        assert pools[name]["running"] + pools[name]["queued"] == 4
    facts = found.sections["facts"]
    assert (facts["busy"], facts["slots"], facts["running"]) == (
        6,
        6,
        1 + pools["x"]["running"],
    )
    assert found.sections["hosts"]["h"]["resources"]["gpu"] == (0.0, 2.0)
    assert sum(one.slots for one in found.running) == 6


def test_a_pool_shows_what_it_holds_of_the_resources_that_it_limits() -> None:
    """In bytes and numbers; other pools show nothing."""
    limited = Pool("x", resources_max={"memory": "3 GiB", "gpu": 1.5})
    run = Scheduled(6, limited, Pool("y"))
    run.arrive("x", "x", tasks=4, resources={"memory": "1 GiB", "gpu": 0.5})
    run.decide(0.0)
    pools = run.reader.snapshot({}, "fair").sections["pools"]
    assert pools["x"]["limits"] == {"memory": (3 << 30, 3 << 30), "gpu": (1.5, 1.5)}
    assert "limits" not in pools["y"]


def test_a_waiting_job_has_its_position_and_those_before_it() -> None:
    """In its own pool, in the order in which jobs get slots; and a reason."""
    run = Scheduled(1, Pool("a"), Pool("b"), scheduler="fifo")
    for n in range(6):
        run.arrive(f"j{n}", "a")
    run.arrive("other", "b")
    run.decide(0.0)
    mine = [OwnJob("j0", "first"), OwnJob("j5", "last"), OwnJob("other", "")]
    own = run.reader.snapshot({"ann": mine}, "fifo").own["ann"]
    assert own["j0"]["state"] == "running"
    assert "position" not in own["j0"]
    assert (own["j5"]["position"], own["j5"]["ahead"]) == (5, ["j2", "j3", "j4"])
    assert (own["other"]["position"], own["other"]["ahead"]) == (1, [])
    assert own["j5"]["state"] == "queued"
    assert own["j5"]["numbers"] == [1, 0, 0, 0]
    # A snapshot finds reasons for a limited time, which a busy machine spends on one job.
    until(lambda: run.reader.snapshot({"ann": mine}, "fifo").own["ann"]["j5"]["reason"])


def test_a_held_job_is_shown_in_its_own_pool() -> None:
    """The session has it in a closed pool meanwhile."""
    run = Scheduled(1, Pool("a"), Pool("held", slots_max={"task": 0}))
    run.arrive("j", "held")
    run.decide(0.0)
    (own,) = (
        run.reader.snapshot({"ann": [OwnJob("j", "", pool="a")]}, "fair").own["ann"].values()
    )
    assert (own["state"], own["pool"]) == ("held", "a")


def test_jobs_that_wait_for_admission_are_queued_after_the_others() -> None:
    """The order is that of their admission."""
    run = Scheduled(4, Pool("a", jobs_max=1))
    for n in range(3):
        run.arrive(f"j{n}", "a", tasks=9)
    run.decide(0.0)
    found = run.reader.snapshot({"ann": [OwnJob(f"j{n}", "") for n in range(3)]}, "fair")
    assert [one.get("position") for one in found.own["ann"].values()] == [None, 1, 2]
    pool = found.sections["pools"]["a"]
    assert (pool["running"], pool["queued"]) == (1, 2)


def test_attempts_that_failed_are_marked() -> None:
    """By job, phase, task and attempt."""
    run = Scheduled(2, Pool("a"))
    run.arrive("j", "a", tasks=2)
    run.decide(0.0)
    name = PhaseId("j", "p")
    failed = TaskFailed(1.0, name, 0, 1, "exit code 1")
    run.state.at(1.0)
    for event in (failed, TaskFinished(1.0, name, 1, 1, 1.0)):
        run.state.apply(event)
    found = run.reader.snapshot({}, "fair", [failed])
    assert found.ended == {("j", "p", 0, 1): "failed"}
    assert found.sections["facts"]["busy"] == 0


def test_what_is_sent_is_bounded() -> None:
    """Of many slots pages draw pools; of many running jobs and own jobs they get the first."""
    slots = LANES_MAX + 10
    run = Scheduled(slots, Pool("a"))
    for n in range(slots + 100):
        run.arrive(f"j{n}", "a")
    run.decide(0.0)
    mine = [OwnJob(f"j{n}", "") for n in range(ROWS_MAX)]
    found = run.reader.snapshot({"ann": mine}, "fair")
    assert found.running == []
    assert len(found.sections["live"]) == ROWS_MAX
    assert len(found.own["ann"]) < len(mine)
    assert found.sections["facts"]["running"] == slots


# Of a server.


@contextmanager
def events(server: RunningServer) -> Iterator[Iterator[bytes]]:
    """The events of a stream of a server."""
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(PATIENCE)
    link.connect(server.url.removeprefix("unix:"))
    connection = http.client.HTTPConnection("localhost")
    connection.sock = link
    connection.request("GET", "/v1/stream")
    answer = connection.getresponse()
    assert answer.status == 200

    def read() -> Iterator[bytes]:
        lines: list[bytes] = []
        while line := answer.readline():
            lines.append(line)
            if line == b"\n":
                yield b"".join(lines)
                lines = []

    with link, connection_closed(connection):
        yield read()


@contextmanager
def connection_closed(connection: http.client.HTTPConnection) -> Iterator[None]:
    """Close a connection at the end."""
    try:
        yield
    finally:
        connection.close()


def fetched(server: RunningServer, path: str) -> tuple[int, Mapping[str, str], bytes]:
    """Status, headers and body of an answer."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(server.url.removeprefix("unix:"))
        connection = http.client.HTTPConnection("localhost")
        connection.sock = link
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()


def seen(stream: Iterator[bytes], page: Page, wanted: Callable[[Page], object]) -> None:
    """Read until a page shows something."""
    for event in stream:
        page.take(event)
        if page.sections and wanted(page):
            return
    raise AssertionError("the stream has ended")


def test_a_page_sees_a_job_come_run_and_end(server: RunningServer) -> None:
    """Names arrive as they are, as JSON of ASCII."""
    name = "echo '<img src=x onerror=alert(1)>' '\x1b[31m'"
    with events(server) as stream:
        page = Page()
        seen(stream, page, lambda page: True)
        assert page.about["can"]
        assert page.sections["own"] == {}
        go = server.folder / "go"
        wait = f"{name}; while [ ! -e {go} ]; do sleep 0.02; done"
        (job,) = server.submit({"command": wait, "pool": "new"})
        seen(
            stream,
            page,
            lambda page: page.sections["own"].get(job, {}).get("state") == "running",
        )
        assert page.sections["own"][job]["name"] == wait
        assert [one[0] for one in page.sections["slots"].values()] == [job]
        assert page.sections["pools"]["new"]["used"] == 1
        go.touch()
        seen(stream, page, lambda page: job not in page.sections["own"])
        assert page.kinds[0] == "state"
        assert "state" not in page.kinds[1:]
        assert page.sections["slots"] == {}
        assert page.bars[-1][3] == job


def test_a_stream_ends_with_the_server_and_the_next_one_continues(
    server: RunningServer,
) -> None:
    """A page connects again, and gets the whole state."""
    (job,) = server.submit({"command": "sleep 60"})
    with events(server) as stream:
        seen(stream, Page(), lambda page: job in page.sections["own"])
        assert server.end() == 0
        for _ in stream:  # It ends.
            pass
    server.start()
    with events(server) as stream:
        page = Page()
        seen(
            stream,
            page,
            lambda page: page.sections["own"].get(job, {}).get("state") == "running",
        )
        assert page.kinds[0] == "state"
    server.post(f"/v1/jobs/{job}/cancel")


def test_the_table_is_sorted_and_paged_by_the_server(server: RunningServer) -> None:
    """By number unless it is stated otherwise; an unknown column is refused."""
    jobs = [{"id": f"j{n}", "command": "true", "pool": "zyx"[n % 3]} for n in range(7)]
    server.submit(*jobs)
    for n in range(7):
        server.wait(f"j{n}")

    def listed(**query: Any) -> tuple[list[str], bool]:
        found = server.get("/v1/jobs", **query)
        return [one["id"] for one in found["jobs"]], found["more"]

    assert listed(limit=3) == (["j4", "j5", "j6"], True)
    assert listed(limit=3, offset=3) == (["j1", "j2", "j3"], True)
    assert listed(limit=3, offset=6) == (["j0"], False)
    assert listed(limit=3, order="oldest", sort="pool") == (["j2", "j5", "j1"], True)
    assert listed(limit=9, search="j3")[0] == ["j3"]
    assert server.get("/v1/jobs", limit=1, sort="ended")["jobs"][0]["ended"] == max(
        one["ended"] for one in server.get("/v1/jobs")["jobs"]
    )
    with pytest.raises(Exception, match="sort"):
        listed(sort="spec")


def test_the_page_and_its_files_are_served_and_nothing_else(server: RunningServer) -> None:
    """With headers that forbid scripts and styles from elsewhere."""
    status, headers, body = fetched(server, "/")
    assert status == 200
    assert b"<title>slotwise</title>" in body
    assert "default-src 'self'" in headers["content-security-policy"]
    for asset in ASSETS.iterdir():
        status, headers, body = fetched(server, f"/page/{asset.name}")
        assert (status, body) == (200, asset.read_bytes())
        assert headers["x-content-type-options"] == "nosniff"
    for path in ("/page/..%2fpage.py", "/page/%2e%2e/page.py", "/page/", "/page/nothing.js"):
        assert fetched(server, path)[0] == 404


# The files of the page.


class Inline(HTMLParser):
    """What a page contains that its policy forbids."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note styles, handlers, and scripts without a file."""
        names = dict(attrs)
        self.found += [f"{tag} {name}" for name in names if name == "style" or name[:2] == "on"]
        if tag == "style" or (tag == "script" and "src" not in names):
            self.found.append(tag)
        self.links += [str(names[name]) for name in ("src", "href") if name in names]


def test_the_page_has_no_inline_code_and_loads_nothing_from_elsewhere() -> None:
    """Its scripts never make HTML of text, so that text of users cannot become code."""
    parser = Inline()
    parser.feed((ASSETS / "index.html").read_text())
    assert parser.found == []
    assert parser.links
    assert all(re.match(r"page/|#", link) for link in parser.links)
    makes = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|Function\("
    )
    for script in ASSETS.glob("*.js"):
        text = script.read_text()
        assert not makes.search(text), script
        assert not re.search(r"https?://", text), script


def test_the_files_of_the_page_are_in_the_wheel(tmp_path: Path) -> None:
    """As a user installs it."""
    pytest.importorskip("hatchling")
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for asset in ASSETS.iterdir():
        assert f"slotwise/service/page/assets/{asset.name}" in names
