"""`--history` of plan, simulate and compare: histories are used and not damaged."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slotwise import Simulation, compare, plan, plan_tasks, replay, simulate, sources
from slotwise.core.events import JobArrived
from slotwise.core.history import append_history, read_history
from slotwise.core.job import Observation
from slotwise.core.log import Log, read_log

PROGRAMS = """\
slotwise: 1
cluster:
  hosts:
    - {name: h1, slots: 1}
    - {name: h2, slots: 1}
jobs:
  - {id: words, program: wordcount, inputs: "in/*.txt", output: words, reducers: 1,
     split_bytes: 1000}
"""

MAPS, BYTES, KEPT = 12, 12_000, 33
RATE = 0.01
"""Seconds a byte of the maps in the history; the reduce takes a tenth of it."""


def seen(count: int, host: str, speed: float, phase: str = "map") -> list[Observation]:
    """Tasks that ran on a host of this true speed, stated as 1."""
    rate = RATE if phase == "map" else RATE / 10
    return [Observation("wordcount", phase, 1000, host, 1.0, 1000 * rate / speed)] * count


@pytest.fixture
def words(folder: Path) -> Path:
    """Twelve splits of text in words.yaml, for two hosts with the same stated speed."""
    (folder / "in").mkdir()
    (folder / "in" / "book.txt").write_text(("word " * 199 + "end.\n") * MAPS)
    (folder / "words.yaml").write_text(PROGRAMS)
    return folder


@pytest.fixture
def known(words: Path) -> Path:
    """A history by which h2 is half as fast as stated."""
    tasks = seen(20, "h1", 1.0) + seen(12, "h2", 0.5) + seen(1, "h1", 1.0, "reduce")
    assert len(tasks) == KEPT
    append_history(words / "h.db", tasks)
    return words / "h.db"


def arrived(log: Log) -> dict[str, float | None]:
    """The estimated work of each phase when its job arrived."""
    jobs = [e.job for turn in log.turns for e in turn.events if isinstance(e, JobArrived)]
    return {phase.name: phase.tasks.work_total() for job in jobs for phase in job.phases}


@pytest.mark.parametrize("command", ["plan", "simulate", "compare"])
def test_a_command_reads_the_history_once(
    command: str, slotwise: Any, known: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for its notice about work that the history does not know."""
    read: list[object] = []
    monkeypatch.setattr(sources, "read_history", lambda path: read.append(path) or [])
    done = slotwise(command, "words.yaml", "--history", "h.db", "--json")
    assert "has no record of words/map, words/reduce" in done.stderr
    assert read == [Path("h.db")]


KNOWN_WORK = pytest.approx({"map": RATE * BYTES, "reduce": RATE * BYTES / 10})


@pytest.mark.parametrize("allocator", ["flex", "flowflex"])
def test_a_plan_of_programs_takes_their_work_from_the_history(
    allocator: str, slotwise: Any, known: Path
) -> None:
    """All maps, then the reduce, on two slots; the bytes of the database stay as they are."""
    before = known.read_bytes()
    arguments = ("plan", "words.yaml", "--allocator", allocator, "--json")
    done = slotwise(*arguments, "--history", "h.db")
    assert (done.exit_code, done.stderr) == (0, "")
    work = RATE * BYTES
    assert json.loads(done.stdout)["value"] == pytest.approx(work / 2 + work / 10)
    guessed = json.loads(slotwise(*arguments).stdout)["value"]
    assert guessed < work / 1000, "without it the program's own rates count"
    assert known.read_bytes() == before
    assert [path.name for path in known.parent.glob("h.db*")] == ["h.db"]


def test_a_plan_of_tasks_uses_the_measured_speeds(slotwise: Any, known: Path) -> None:
    """A task of 10 s takes 20 s on the host that is half as fast as stated."""
    done = slotwise(
        *("plan", "words.yaml", "--scheduler", "dmrs", "--json", "--history", "h.db")
    )
    assert (done.exit_code, done.stderr) == (0, "")
    spans = {(run[3], run[5] - run[4]) for run in json.loads(done.stdout)["assignment"]}
    maps = {(host, round(span, 6)) for host, span in spans if span < 25}
    assert {("h1", 10.0), ("h2", 20.0)} <= maps
    assert plan_tasks("words.yaml", "dmrs", history="h.db").value == pytest.approx(
        json.loads(done.stdout)["value"]
    )


def test_a_simulation_estimates_by_the_history_and_runs_as_stated(
    slotwise: Any, known: Path
) -> None:
    """The log has the cluster that the scheduler knows; tasks take as long as stated."""
    before = known.read_bytes()
    arguments = ("simulate", "words.yaml", "--json", "--log", "log.jsonl")
    done = slotwise(*arguments, "--history", "h.db")
    assert (done.exit_code, done.stderr) == (0, "")
    log = read_log("log.jsonl")
    assert arrived(log) == KNOWN_WORK
    speeds = {host.name: host.speed for host in log.header.cluster.hosts}
    assert speeds == pytest.approx({"h1": 1.0, "h2": 0.5})
    makespan = json.loads(done.stdout)["metrics"]["makespan"]
    assert makespan == pytest.approx(RATE * BYTES * (1 / 2 + 1 / 10)), "both run at speed 1"
    assert replay(log).is_identical
    assert known.read_bytes() == before


def test_python_takes_a_history_as_the_command_does(known: Path) -> None:
    """plan, simulate and compare; all compared schedulers have the same estimates."""
    assert plan("words.yaml", history="h.db").value == pytest.approx(72.0)
    assert arrived(simulate("words.yaml", history="h.db").log) == KNOWN_WORK
    for result in compare("words.yaml", ["fifo", "fair"], history=known):
        assert arrived(result.log) == KNOWN_WORK
    assert len(read_history(known)) == KEPT, "nothing was added"


def test_a_live_comparison_estimates_and_adds(slotwise: Any, known: Path) -> None:
    """Both use the history from before the first run; the tasks of both are added."""
    done = slotwise(
        *("compare", "words.yaml", "--live", "--schedulers", "fifo,fair", "--slots", "1"),
        *("--json", "--history", "h.db", "--log", "log.jsonl"),
    )
    assert done.exit_code == 0, done.stderr
    for name in "fifo", "fair":
        assert arrived(read_log(f"log-{name}.jsonl")) == KNOWN_WORK
    here = [o for o in read_history(known) if o.host == "localhost"]
    assert sorted(o.phase for o in here) == ["map"] * 2 * MAPS + ["reduce"] * 2


def test_a_live_comparison_creates_a_history(slotwise: Any, words: Path) -> None:
    """As `run` does."""
    done = slotwise(
        *("compare", "words.yaml", "--live", "--schedulers", "fair", "--slots", "1"),
        *("--json", "--history", "new.db"),
    )
    assert done.exit_code == 0, done.stderr
    assert len(read_history(words / "new.db")) == MAPS + 1


with_each_command = pytest.mark.parametrize(
    "command",
    [
        ("history",),
        ("plan", "words.yaml", "--history"),
        ("plan", "words.yaml", "--scheduler", "dmrs", "--history"),
        ("simulate", "words.yaml", "--history"),
        ("compare", "words.yaml", "--history"),
        ("compare", "words.yaml", "--live", "--history"),
        ("run", "words.yaml", "--history"),
    ],
    ids=lambda command: " ".join(command),
)


def is_read_only(command: tuple[str, ...]) -> bool:
    """Whether the command never adds to a history, and therefore never creates one."""
    return command[0] != "run" and "--live" not in command


def remake(path: Path, statement: str) -> None:
    """Change a database without slotwise."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)


@with_each_command
def test_every_command_refuses_a_file_that_is_not_a_history(
    command: tuple[str, ...], slotwise: Any, known: Path
) -> None:
    """Foreign, newer, damaged: exit code 2, place, value and remedy; the file is unchanged."""
    folder = known.parent
    for name in "foreign.db", "newer.db", "half.db":
        (folder / name).write_bytes(known.read_bytes())
    (folder / "text.db").write_text("no database\n" * 100)
    remake(folder / "foreign.db", "PRAGMA application_id = 7")
    remake(folder / "newer.db", "PRAGMA user_version = 99")
    half = known.read_bytes()
    (folder / "half.db").write_bytes(half[:4096] + b"\xff" * (len(half) - 4096))
    reasons = {
        "text.db": ("not a database", "name a file that `slotwise run --history` has written"),
        "foreign.db": (
            "this file is not a history",
            "name a file that `slotwise run --history`",
        ),
        "newer.db": ("its format is 99", "update it, or name another file"),
        "half.db": ("damaged", "name another file"),
    }
    files = {path.name: path.read_bytes() for path in folder.glob("*.db*")}
    for name, (why, remedy) in reasons.items():
        done = slotwise(*command, name)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert f"history '{name}'" in done.stderr
        assert why in done.stderr
        assert remedy in done.stderr
    assert {path.name: path.read_bytes() for path in folder.glob("*.db*")} == files
    assert not [path for path in folder.glob("words*") if path.is_dir()], "no job began"


@with_each_command
def test_a_missing_history(command: tuple[str, ...], slotwise: Any, words: Path) -> None:
    """A command that reads names the command that writes it; others say why they cannot."""
    name = "h.db" if is_read_only(command) else "missing/h.db"
    done = slotwise(*command, name)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"history '{name}'" in done.stderr
    why = "no such file; name one that `slotwise run --history` has written"
    assert (why if is_read_only(command) else "name another file") in done.stderr
    assert not list(words.glob("**/*.db*"))


@pytest.mark.parametrize(
    ("command", "log"),
    [
        (("simulate", "words.yaml"), "h.db"),
        (("run", "words.yaml"), "in/../h.db"),
        (("compare", "words.yaml", "--schedulers", "fifo,fair"), "h.db"),
        (("compare", "words.yaml", "--schedulers", "fifo,fair", "--live"), "h.db"),
    ],
)
def test_a_log_never_replaces_the_history(
    command: tuple[str, ...], log: str, slotwise: Any, known: Path
) -> None:
    """Neither by another path, nor by the name that compare derives from it."""
    name = "h-fair.db" if command[0] == "compare" else "h.db"
    (known.parent / name).write_bytes(known.read_bytes())
    before = (known.parent / name).read_bytes()
    done = slotwise(*command, "--history", name, "--log", log)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"history '{name}' is the log, too; name another file" in done.stderr
    assert (known.parent / name).read_bytes() == before


@pytest.mark.parametrize(
    "command",
    [("plan", "words.yaml"), ("simulate", "words.yaml"), ("compare", "words.yaml")],
)
def test_programs_missing_in_the_history_are_named(
    command: tuple[str, ...], slotwise: Any, known: Path
) -> None:
    """They are estimated as without a history; a line names them and the remedy."""
    (known.parent / "words.yaml").write_text(
        PROGRAMS.replace("wordcount", "grep").replace(
            "reducers: 1", 'reducers: 1, parameters: {pattern: "word"}'
        )
    )
    done = slotwise(*command, "--json", "--history", "h.db")
    assert (done.exit_code, done.stderr.count("\n")) == (0, 1)
    assert "history 'h.db' has no record of words/map" in done.stderr
    assert "run it once with --history" in done.stderr


def test_few_tasks_do_not_change_a_stated_speed(words: Path) -> None:
    """Eleven tasks are too few, and those of a host of another stated speed do not count."""
    append_history(words / "few.db", seen(40, "h1", 1.0) + seen(11, "h2", 0.5))
    done = simulate("words.yaml", history="few.db").log.header.cluster
    assert [host.speed for host in done.hosts] == [1.0, 1.0]
    (words / "words.yaml").write_text(PROGRAMS.replace("{name: h2,", "{name: h2, speed: 2.0,"))
    append_history(words / "few.db", seen(11, "h2", 0.5))
    done = simulate("words.yaml", history="few.db").log.header.cluster
    assert [host.speed for host in done.hosts] == [1.0, 2.0]


@pytest.mark.parametrize("scheduler", ["dmrs", "flex"])
def test_measured_speeds_that_are_true(scheduler: str, slotwise: Any, known: Path) -> None:
    """The simulated hosts have the measured speeds; the bound holds for them."""
    done = slotwise(
        *("simulate", "words.yaml", "--scheduler", scheduler, "--json", "--log", "log.jsonl"),
        *("--history", "h.db", "--true-speed", "h2=0.5"),
    )
    assert (done.exit_code, done.stderr) == (0, "")
    found, log = json.loads(done.stdout), read_log("log.jsonl")
    assert log.header.cluster == log.header.true_cluster
    assert [host.speed for host in log.header.cluster.hosts] == [1.0, 0.5]
    assert found["bound"] <= found["metrics"]["value"]
    assert replay(log).is_identical


def test_knowing_the_slow_host_helps(words: Path) -> None:
    """Three large maps: a scheduler that knows that h2 is four times as slow gives it none.

    Both histories know the work; within the run it is too late to learn the rest.
    """
    (words / "words.yaml").write_text(PROGRAMS.replace("1000}", "4000}"))
    append_history(words / "one.db", seen(20, "h1", 1.0) + seen(1, "h1", 1.0, "reduce"))
    append_history(words / "both.db", read_history(words / "one.db") + seen(12, "h2", 0.25))
    truth = Simulation(speeds={"h2": 0.25})
    one, both = (
        simulate("words.yaml", "dmrs", simulation=truth, history=name).metrics["makespan"]
        for name in ("one.db", "both.db")
    )
    assert both < one


def test_emulated_hosts_are_known_by_their_names(slotwise: Any, known: Path) -> None:
    """In a live run the scheduler knows their measured speeds, and their tasks are added."""
    done = slotwise(
        *("run", "words.yaml", "--emulate-hosts", "--scheduler", "dmrs", "--json"),
        *("--history", "h.db", "--log", "log.jsonl"),
    )
    assert done.exit_code == 0, done.stderr
    log = read_log("log.jsonl")
    assert [host.speed for host in log.header.cluster.hosts] == [1.0, 0.5]
    assert arrived(log) == KNOWN_WORK
    assert replay(log).is_identical
    tasks = read_history(known)
    assert len(tasks) == KEPT + MAPS + 1
    assert {(o.host, o.speed) for o in tasks} == {("h1", 1.0), ("h2", 1.0)}
