"""Large results of tasks on a host that is removed: its files are on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from slotwise import Calls, Job, Phase, Session, Tasks, read_log, replay
from slotwise.core.events import OutputLost
from slotwise.jobs.calls import Results

PATIENCE = 120.0


def functions(folder: Path) -> dict[str, Callable[..., object]]:
    """Two tasks that run together, and one that reads their results after a file exists."""

    def wait_for(marks: int) -> None:
        until = time.monotonic() + PATIENCE
        while len(list(folder.iterdir())) < marks and time.monotonic() < until:
            time.sleep(0.005)

    def make(task: int) -> bytes:
        (folder / f"make-{task}").touch()
        wait_for(2)
        return bytes(1 << 20)

    def join(task: int, results: Results) -> int:
        (folder / "join").touch()
        wait_for(4)
        return sum(map(len, results["make"]))

    return {"make": make, "join": join}


def test_results_of_a_removed_host_are_still_there(tmp_path: Path) -> None:
    """Nothing is reported lost, and nothing is repeated that was done."""
    marks = tmp_path / "marks"
    marks.mkdir()
    phases = (Phase("make", Tasks(2)), Phase("join", Tasks(1), after=frozenset({"make"})))
    calls = Calls(Job("j", phases), functions(marks))
    with Session(1, log=tmp_path / "log") as session:
        session.add_host("more", 1)
        future = session.run(calls)
        until = time.monotonic() + PATIENCE
        while not (marks / "join").exists():
            assert time.monotonic() < until
            time.sleep(0.005)
        session.remove_host("more", drain=False)
        while [host.name for host in session.hosts()] != ["localhost"]:
            assert time.monotonic() < until
            time.sleep(0.005)
        (marks / "go").touch()
        future.result(PATIENCE)
    assert calls.results["join"] == {0: 2 << 20}
    events = [event for turn in read_log(tmp_path / "log").turns for event in turn.events]
    assert not any(isinstance(event, OutputLost) for event in events)
    assert replay(tmp_path / "log").is_identical
