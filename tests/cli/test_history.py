"""`slotwise history`: its table, its JSON and its errors; and runs that use a history."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slotwise.api import replay, run
from slotwise.core.decisions import Launch
from slotwise.core.events import JobArrived, TaskFinished
from slotwise.core.history import append_history, read_history
from slotwise.core.job import Observation, PhaseId
from slotwise.core.log import Log, read_log
from slotwise.core.state import State


@pytest.fixture
def known(folder: Path) -> Path:
    """A history of a word count on two hosts, one of which is half as fast as stated."""
    path = folder / "history.db"
    maps = [
        Observation("wordcount", "map", 10_000_000, host, 1.0, seconds)
        for host, seconds in [("h1", 0.5)] * 6 + [("h2", 1.0)] * 3
    ]
    append_history(path, [*maps, Observation("wordcount", "reduce", 1000, "h1", 1.0, 0.001)])
    return path


def test_history_prints_rates_and_speeds(slotwise: Any, known: Path) -> None:
    """A line for each phase and host; the default is the database in the folder."""
    done = slotwise("history")
    assert (done.exit_code, done.stderr) == (0, "")
    assert [line.split() for line in done.stdout.splitlines() if line] == [
        ["program", "phase", "MB/s", "a", "slot", "spread", "tasks"],
        ["wordcount", "map", "20.0", "0", "%", "9"],
        ["wordcount", "reduce", "1.00", "–", "1"],
        ["host", "stated", "speed", "spread", "tasks"],
        ["h1", "1.00", "1.00", "0", "%", "7"],
        ["h2", "1.00", "0.50", "0", "%", "3"],
    ]
    assert slotwise("history", "history.db").stdout == done.stdout


def test_history_prints_json(slotwise: Any, known: Path) -> None:
    """One object and nothing else."""
    done = slotwise("history", str(known), "--json")
    assert (done.exit_code, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    plain = json.loads(done.stdout)
    assert list(plain) == ["programs", "commands", "hosts"]
    assert [row["seconds_per_byte"] for row in plain["programs"]] == pytest.approx([5e-8, 1e-6])
    assert [(row["host"], row["tasks"]) for row in plain["hosts"]] == [("h1", 7), ("h2", 3)]
    assert [row["speed"] for row in plain["hosts"]] == pytest.approx([1.0, 0.5])


def test_an_empty_history_says_so(slotwise: Any, folder: Path) -> None:
    """A history without measurements is not an error."""
    append_history(folder / "h.db", [])
    assert slotwise("history", "h.db").stdout == "no measurements yet\n"
    assert json.loads(slotwise("history", "h.db", "--json").stdout) == {
        "programs": [],
        "commands": [],
        "hosts": [],
    }


def test_a_file_that_is_not_a_history_is_refused(slotwise: Any, folder: Path) -> None:
    """With exit code 2 and one line; no file is created or changed."""
    before = sorted(folder.iterdir()), (folder / "jobs.yaml").read_bytes()
    for name, why in (
        ("none.db", "no such file"),
        ("jobs.yaml", "is a workload file and"),
    ):
        done = slotwise("history", name)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert f"history '{name}'" in done.stderr
        assert why in done.stderr
    assert (sorted(folder.iterdir()), (folder / "jobs.yaml").read_bytes()) == before


@pytest.mark.parametrize("command", ["plan", "simulate", "run", "history"])
def test_a_name_that_is_too_long_is_refused(command: str, slotwise: Any, folder: Path) -> None:
    """As other bad names are, with one message."""
    name = "x" * 5000
    asked = ["history"] if command == "history" else [command, "jobs.yaml", "--history"]
    done = slotwise(*asked, name)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "File name too long; name another file" in done.stderr


PACED = """\
import time
from slotwise.jobs.builtin.wordcount import WordCount

class Paced(WordCount):
    def fold_chunk(self, text, table):
        time.sleep(4e-6 * len(text))
        super().fold_chunk(text, table)
"""
"""A word count whose maps take at least a known time."""

WORDS = """\
slotwise: 1
jobs:
  - {id: wc, program: "paced.py:Paced", inputs: "in/*.txt", output: out, reducers: 2,
     split_bytes: 9000}
"""


@pytest.fixture
def words(folder: Path) -> Path:
    """A word count of some small books, in words.yaml."""
    rng = random.Random(3)
    (folder / "in").mkdir()
    for number in range(30):
        words = (f"word{int(rng.expovariate(0.02))}" for _ in range(rng.randint(500, 1000)))
        (folder / "in" / f"book{number:02}.txt").write_text("\n".join(words) + "\n")
    (folder / "words.yaml").write_text(WORDS)
    (folder / "paced.py").write_text(PACED)
    return folder


@dataclass
class Ran:
    """The log of a live run of the word count: its estimates and its measured work."""

    log: Log

    def work(self, phase: str) -> float | None:
        """The work of a phase as it was estimated beforehand, in seconds."""
        (job,) = (e.job for t in self.log.turns for e in t.events if isinstance(e, JobArrived))
        return job.by_name[phase].tasks.work_total()

    def truth(self, phase: str) -> float:
        """The seconds that it took."""
        ends = (e for t in self.log.turns for e in t.events if isinstance(e, TaskFinished))
        return sum(e.seconds for e in ends if e.phase.phase == phase)

    def error(self, phase: str) -> float:
        """The factor, above 1, by which the first estimate was wrong."""
        estimate, truth = self.work(phase), self.truth(phase)
        assert estimate is not None
        return max(estimate / truth, truth / estimate)

    def left(self, part: float) -> tuple[float, float]:
        """The remaining work of the maps when this part of them is done, by two estimates.

        That of the scheduler at that time; and the first estimate times the factor by which it
        was wrong for the maps that are done. The true work depends on the load of the machine.
        """
        (job,) = (e.job for t in self.log.turns for e in t.events if isinstance(e, JobArrived))
        stated = job.by_name["map"].tasks
        total = stated.work_total() or 0.0
        state = State(self.log.header.cluster, self.log.header.pools)
        seen, seen_stated, map_id = 0.0, 0.0, PhaseId("wc", "map")
        for turn in self.log.turns:
            state.at(turn.now)
            for entry in (*turn.events, *turn.decisions):
                state.apply(entry)
                if isinstance(entry, TaskFinished):
                    seen += entry.seconds
                    seen_stated += stated.work_of(entry.task) or 0.0
            if seen_stated > part * total:
                kind = state.cluster.slot_kind("map")
                (phase,) = (p for p in state.ready(kind) if p.id == map_id)
                return phase.work_left(turn.now), (total - seen_stated) * seen / seen_stated
        raise AssertionError("the maps never reached this part")


@pytest.fixture
def count_words(slotwise: Any, words: Path) -> Callable[[], Ran]:
    """Runs the word count, live on one slot, with the history h.db."""

    def run() -> Ran:
        done = slotwise(
            *("run", "words.yaml", "--slots", "1", "--overwrite", "--json"),
            *("--history", "h.db", "--log", "log.jsonl"),
        )
        assert done.exit_code == 0, done.stderr
        log = read_log("log.jsonl")
        return Ran(Log(log.header, list(log.turns)))  # The next run replaces the file.

    return run


def test_a_second_run_has_a_better_estimate(
    count_words: Callable[[], Ran], folder: Path
) -> None:
    """The first estimate of the same program is nearer to the measured work."""
    first, second = count_words(), count_words()
    assert first.error("map") > 50, "the program states its rate without its pauses"
    assert second.error("map") < first.error("map") / 25
    assert replay(second.log).is_identical, "the log has the estimates"
    tasks = read_history(folder / "h.db")
    assert {(o.program, o.phase, o.host) for o in tasks} == {
        ("paced.py:Paced", "map", "localhost"),
        ("paced.py:Paced", "reduce", "localhost"),
    }
    size = sum(path.stat().st_size for path in (folder / "in").iterdir())
    for phase in "map", "reduce":
        assert sum(o.bytes for o in tasks if o.phase == phase) == pytest.approx(2 * size, abs=8)
        took = sum(o.seconds for o in tasks if o.phase == phase)
        assert took == pytest.approx(first.truth(phase) + second.truth(phase))


@pytest.mark.parametrize("factor", [10.0, pytest.param(0.1, marks=pytest.mark.slow)])
def test_a_wrong_history_is_corrected_within_the_run(
    factor: float, count_words: Callable[[], Ran], folder: Path
) -> None:
    """Wrong by 10 at first; when half of the maps are done, the estimate follows them."""
    wrong = Observation("paced.py:Paced", "map", 1000, "localhost", 1.0, factor * 4e-3)
    append_history(folder / "h.db", [wrong] * 99)
    ran = count_words()
    size = sum(path.stat().st_size for path in (folder / "in").iterdir())
    assert ran.work("map") == pytest.approx(factor * 4e-6 * size), "it is the first estimate"
    estimated, corrected = ran.left(1 / 2)
    assert estimated == pytest.approx(corrected)


TWO = """\
slotwise: 1
jobs:
  - {id: large, program: "paced.py:Bold", inputs: "in/*.txt", output: large, split_bytes: 9000,
     reducers: 0, overwrite: true}
  - {id: small, program: "paced.py:Shy", inputs: "in/book00.txt", output: small, reducers: 0,
     overwrite: true}
"""

OF_TWO = """
class Bold(Paced):
    map_bytes_per_second = 1e9

class Shy(Paced):
    map_bytes_per_second = 100.0
"""


@pytest.mark.parametrize(
    "scheduler", ["flex", pytest.param("flowflex-fast", marks=pytest.mark.slow)]
)
def test_the_order_of_jobs_is_learned(scheduler: str, words: Path) -> None:
    """A long job that states too little work runs first only in the first run."""
    (words / "paced.py").write_text(PACED + OF_TWO)
    (words / "two.yaml").write_text(TWO)
    served = []
    for _ in range(2):
        log = run("two.yaml", scheduler, slots=1, history="h.db").log
        launches = (d for t in log.turns for d in t.decisions if isinstance(d, Launch))
        served.append(next(launches).phase.job)
    assert served == ["large", "small"]


def test_a_run_without_a_history_creates_none(slotwise: Any, words: Path) -> None:
    """Measurements are kept only with `--history`."""
    assert slotwise("run", "words.yaml", "--slots", "2", "--json").exit_code == 0
    assert not [path for path in words.iterdir() if ".db" in path.name]


def test_a_run_refuses_a_file_that_is_not_a_history(slotwise: Any, words: Path) -> None:
    """Before it begins; and it creates no history if another option is refused."""
    for name, more, why in (
        ("words.yaml", [], "is a workload file and"),
        ("missing/h.db", [], "unable to open"),
        ("h.db", ["--log", "h.db"], "is the log, too"),
        ("h.db", ["--scheduler", "nonsense"], "unknown scheduler"),
    ):
        done = slotwise("run", "words.yaml", "--history", name, *more)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert why in done.stderr
    assert (words / "words.yaml").read_text() == WORDS
    assert not [path for path in words.iterdir() if path.name == "out" or ".db" in path.name]


GONE = """\
import shutil
from slotwise import MapReduce

class Gone(MapReduce):
    def map(self, offset, line):
        shutil.rmtree("here", ignore_errors=True)
        yield line, 1
    def reduce(self, line, counts):
        yield line, sum(counts)
"""

JOBS = """\
slotwise: 1
jobs:
  - {id: gone, program: "gone.py:Gone", inputs: in.txt, output: out, reducers: 1}
"""


def test_a_run_whose_history_is_deleted_shows_its_result(slotwise: Any, folder: Path) -> None:
    """The job deletes the folder of the history. Its result is on stdout and its output exists;
    the exit code says that the history was not written."""
    for name, text in (("gone.py", GONE), ("gone.yaml", JOBS), ("in.txt", "a\n")):
        (folder / name).write_text(text)
    (folder / "here").mkdir()
    done = slotwise("run", "gone.yaml", "--slots", "1", "--history", "here/h.db", "--json")
    assert done.exit_code == 2
    assert list(json.loads(done.stdout)["jobs"]) == ["gone"]
    assert list((folder / "out").glob("part*"))
    assert "the run is over, but not all of it is recorded: history 'here/h.db'" in done.stderr
