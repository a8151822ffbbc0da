"""`simulate`, `run`, `compare`, `replay` and `report`: output, files and exit codes."""

from __future__ import annotations

import json
import os
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from slotwise import __version__, run
from slotwise.cli.terminal import MAX_FAILED
from slotwise.core.cluster import Host
from slotwise.core.errors import InputError
from slotwise.core.events import HostAdded, HostRemoved
from slotwise.core.log import RULES, read_log
from slotwise.done_record import DoneRecord
from slotwise.insight.report.progress import Progress

LIVE = "slotwise: 1\njobs: [{id: a, phases: [{name: m, work: 0.04, tasks: 4}]}]\n"


def result(line: str, scheduler: str, backend: str, jobs: set[str]) -> dict[str, Any]:
    """One object of JSON, checked against the contract."""
    done: dict[str, Any] = json.loads(line)
    assert list(done) == ["scheduler", "world", "jobs", "metrics", "bound"]
    assert (done["scheduler"], done["world"]) == (scheduler, backend)
    assert set(done["jobs"]) == jobs
    for times in done["jobs"].values():
        assert list(times) == ["arrival", "start", "completion", "response"]
        assert times["arrival"] <= times["start"] < times["completion"]
        assert times["response"] == pytest.approx(times["completion"] - times["arrival"])
    responses = [times["response"] for times in done["jobs"].values()]
    assert done["metrics"]["response_mean"] == pytest.approx(sum(responses) / len(responses))
    assert 0 < done["bound"] <= done["metrics"]["value"]
    return done


def test_simulate_prints_one_object_and_nothing_else(slotwise: Any) -> None:
    """One line of JSON on stdout; the same seed gives the same line."""
    command = ("simulate", "jobs.yaml", "--noise", "0.3", "--seed", "5", "--json")
    done = slotwise(*command)
    assert (done.exit_code, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    result(done.stdout, "flex", "simulated", {"small", "large"})
    assert slotwise(*command).stdout == done.stdout
    assert slotwise(*command[:-2], "6", "--json").stdout != done.stdout


def test_run_keeps_progress_off_stdout(slotwise: Any, folder: Path) -> None:
    """Live, progress goes to stderr and the object to stdout."""
    (folder / "live.yaml").write_text(LIVE)
    done = slotwise("run", "live.yaml", "--slots", "2", "--scheduler", "fair", "--json")
    assert done.exit_code == 0
    result(done.stdout, "fair", "live", {"a"})
    assert [line.split("s  ")[1][:7] for line in done.stderr.splitlines()] == [
        "a: star",
        "a: done",
    ]


@pytest.mark.parametrize(("options", "slots"), [((), 3), (("--slots", "1"), 1)])
def test_run_uses_the_number_of_slots_of_the_workload(
    slotwise: Any, folder: Path, options: tuple[str, ...], slots: int
) -> None:
    """Unless other slots are given, as in a simulation."""
    (folder / "live.yaml").write_text(f"{LIVE}cluster: {{slots: 3, grace: 7}}\n")
    assert slotwise("run", "live.yaml", "--log", "log.jsonl", *options).exit_code == 0
    header = read_log("log.jsonl").header
    assert (sum(header.cluster.capacity.values()), header.cluster.grace) == (slots, 7.0)


@pytest.mark.parametrize("cluster", ["", "cluster: {slots: 3}\n"])
def test_no_slots_are_refused(folder: Path, cluster: str) -> None:
    """They do not mean the default."""
    (folder / "live.yaml").write_text(f"{LIVE}{cluster}")
    with pytest.raises(InputError, match="the cluster has no slots"):
        run("live.yaml", slots=0)


@pytest.mark.parametrize("command", [("run",), ("compare", "--live")])
def test_output_in_the_memory_of_a_process_is_refused_before_the_run(
    slotwise: Any, folder: Path, command: tuple[str, ...]
) -> None:
    """Its tasks would write to the memory of their processes, and their parts be missing."""
    (folder / "text.txt").write_text("a b a\n")
    (folder / "live.yaml").write_text(
        "slotwise: 1\njobs: [{id: w, program: wordcount, inputs: text.txt,"
        " output: 'memory://x/out'}]\n"
    )
    done = slotwise(*command, "live.yaml", "--slots", "1", "--log", "log.jsonl")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "slotwise: live.yaml: jobs[0] (line 2): job 'w': output 'memo"
    )
    assert "name a directory or a store that all of them can reach" in done.stderr
    assert not list(folder.glob("log*"))


def test_compare_prints_a_line_for_each_scheduler(slotwise: Any) -> None:
    """One object for each scheduler, in the given order."""
    done = slotwise("compare", "jobs.yaml", "--schedulers", "flex, fifo", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    for line, name in zip(done.stdout.splitlines(), ["flex", "fifo"], strict=True):
        result(line, name, "simulated", {"small", "large"})


def test_compare_live_writes_separate_outputs(slotwise: Any, folder: Path) -> None:
    """The outputs and logs of each scheduler are named after it."""
    (folder / "text.txt").write_text("a b a\n")
    (folder / "live.yaml").write_text(
        "slotwise: 1\njobs: [{id: w, program: wordcount, inputs: text.txt, output: out/w}]\n"
    )
    options = ("--schedulers", "fifo,fair", "--slots", "1", "--log", "log.jsonl")
    done = slotwise("compare", "live.yaml", "--live", *options)
    assert done.exit_code == 0, done.stderr
    assert sorted(os.listdir("out")) == ["w-fair", "w-fifo"]
    assert sorted(path.name for path in folder.glob("log*")) == [
        "log-fair.jsonl",
        "log-fifo.jsonl",
    ]


def test_a_replay_finds_differing_decisions(slotwise: Any, folder: Path) -> None:
    """The exit code is 0 for an unchanged log, and 1 for a log with another scheduler."""
    slotwise("simulate", "jobs.yaml", "--scheduler", "fifo", "--log", "log.jsonl")
    same = slotwise("replay", "log.jsonl")
    assert same.exit_code == 0
    assert same.stdout.startswith("identical: ")
    log = (folder / "log.jsonl").read_text()
    (folder / "other.jsonl").write_text(log.replace('"name":"fifo"', '"name":"flex"', 1))
    other = slotwise("replay", "other.jsonl", "--json")
    assert other.exit_code == 1
    assert json.loads(other.stdout)["identical"] is False


def test_a_replay_names_the_older_rules_of_a_log(slotwise: Any, folder: Path) -> None:
    """The first logs had no `rules`. They may be why a decision differs now."""
    slotwise("simulate", "jobs.yaml", "--scheduler", "fifo", "--log", "log.jsonl")
    log = (folder / "log.jsonl").read_text()
    assert f'"rules":{RULES},' in log
    old = log.replace(f'"rules":{RULES},', "")
    (folder / "old.jsonl").write_text(old)
    assert slotwise("replay", "old.jsonl").stdout.startswith("identical: ")
    (folder / "other.jsonl").write_text(old.replace('"name":"fifo"', '"name":"flex"', 1))
    done = slotwise("replay", "other.jsonl")
    assert done.exit_code == 1
    told = f"decided by rules 1, and this slotwise decides by rules {RULES}"
    assert told in done.stdout


def test_a_report_is_made_from_logs(slotwise: Any, folder: Path) -> None:
    """Logs of several runs make one page; other files are refused."""
    for name in ("fifo", "flex"):
        slotwise("simulate", "jobs.yaml", "--scheduler", name, "--log", f"{name}.jsonl")
    done = slotwise("report", "fifo.jsonl", "flex.jsonl", "-o", "page.html")
    assert (done.exit_code, done.stdout) == (0, "page.html\n")
    assert "<html" in (folder / "page.html").read_text()
    refused = slotwise("report", "jobs.yaml", "-o", "page.html")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(
        "slotwise: log 'jobs.yaml': this is a workload file, not a log"
    )


POOLS = """\
slotwise: 1
cluster: {slots: 6}
pools: [{name: one}, {name: two}]
jobs:
  - {id: first, pool: one, phases: [{name: m, work: 600, tasks: 6}]}
  - {id: second, arrival: 10, pool: two, phases: [{name: m, work: 30, tasks: 6}]}
"""


def test_slots_are_preempted_on_request(slotwise: Any, folder: Path) -> None:
    """With --preempt a pool has its share after the wait and the grace; without, it waits."""
    (folder / "pools.yaml").write_text(POOLS)
    command = ("simulate", "pools.yaml", "--scheduler", "fair", "--json")
    plain = json.loads(slotwise(*command).stdout)
    assert plain["jobs"]["second"]["start"] == 100
    done = slotwise(*command, "--preempt", "fair=5,grace=2", "--log", "log.jsonl")
    assert json.loads(done.stdout)["jobs"]["second"]["start"] == 10 + 5 + 2
    header = json.loads((folder / "log.jsonl").read_text().split("\n")[0])
    assert header["pools"][0]["preemption"] == {"fair_after": 5.0, "grace": 2.0}
    assert slotwise("replay", "log.jsonl").exit_code == 0


REDUCES = """\
slotwise: 1
cluster: {hosts: [{name: h, slots: {map: 2, reduce: 2}}]}
jobs:
  - id: large
    phases:
      - {name: map, kind: map, work: 80, tasks: 8}
      - {name: reduce, kind: reduce, work: 4, tasks: 2, after: [map], copy: 4}
  - id: small
    arrival: 1
    phases:
      - {name: map, kind: map, work: 2, tasks: 2}
      - {name: reduce, kind: reduce, work: 4, tasks: 2, after: [map]}
"""


def test_reduces_hoard_slots_unless_copying_is_split_off(slotwise: Any, folder: Path) -> None:
    """After a slow start the large job's reduces hold all reduce slots; split, they do not."""
    (folder / "reduces.yaml").write_text(REDUCES)
    command = ("simulate", "reduces.yaml", "--scheduler", "fair", "--json")

    def small(*options: str) -> float:
        done = json.loads(slotwise(*command, *options).stdout)
        response: float = done["jobs"]["small"]["response"]
        return response

    assert small() == small("--slow-start", "0.1", "--split-copies") < 20
    assert small("--slow-start", "0.1") > 30


def test_slots_may_be_counted_by_kind(slotwise: Any, folder: Path) -> None:
    """Live and simulated, with separate numbers of slots for maps and for reduces."""
    (folder / "live.yaml").write_text(
        "slotwise: 1\njobs: [{id: a, phases: [{name: m, kind: map, work: 0.2, tasks: 2},"
        " {name: r, kind: reduce, work: 0.2, tasks: 2, after: [m]}]}]\n"
    )
    for command in ("simulate", "run"):
        options = ("--slots", "map=2,reduce=1", "--log", "log.jsonl")
        done = slotwise(command, "live.yaml", *options, "--json")
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout)["jobs"]["a"]["completion"] >= 0.1 + 2 * 0.1
        header = json.loads((folder / "log.jsonl").read_text().split("\n")[0])
        assert [host["slots"] for host in header["cluster"]] == [{"map": 2, "reduce": 1}]


def test_a_trace_becomes_a_workload(slotwise: Any, folder: Path) -> None:
    """Its first jobs, on a cluster of this many hosts, as a file for every command."""
    (folder / "swim.tsv").write_text(
        "a\t0\t0\t100\t0\t9\nb\t5\t5\t100\t9\t9\nc\t9\t4\t1\t0\t0\n"
    )
    hosts = ("--hosts", "4", "--slots-per-host", "1", "--hosts-per-rack", "2")
    done = slotwise(
        "trace", "import", "swim", "swim.tsv", "-o", "day.yaml", *hosts, "--first", "2"
    )
    assert (done.exit_code, done.stdout) == (0, "day.yaml\n")
    simulated = slotwise("simulate", "day.yaml", "--json")
    assert set(json.loads(simulated.stdout)["jobs"]) == {"a", "b"}
    again = slotwise("trace", "import", "swim", "swim.tsv", "-o", "day.yaml", *hosts)
    assert again.exit_code == 0
    before = (folder / "jobs.yaml").read_text()
    other = slotwise("trace", "import", "swim", "swim.tsv", "-o", "jobs.yaml", *hosts)
    assert other.exit_code == 2
    assert "-o 'jobs.yaml' exists and was not written by slotwise" in other.stderr
    assert (folder / "jobs.yaml").read_text() == before
    refused = slotwise("trace", "import", "swim", "jobs.yaml", "-o", "day.yaml")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("slotwise: jobs.yaml: line 1: ")
    itself = slotwise("trace", "import", "swim", "swim.tsv", "-o", "swim.tsv")
    assert itself.exit_code == 2
    assert "is the trace 'swim.tsv' itself; name another file" in itself.stderr


@pytest.mark.parametrize("words", ["swim FILE", "swf FILE", "openb PODS NODES"])
def test_an_import_needs_a_file_to_write(words: str, slotwise: Any) -> None:
    """One message names the option."""
    refused = slotwise("trace", "import", *words.split())
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("slotwise: -o is missing; name the workload file to write")


def test_the_version_is_printed(slotwise: Any) -> None:
    """`--version` prints name and version."""
    assert slotwise("--version").stdout == f"slotwise {__version__}\n"


@pytest.mark.parametrize(
    "command",
    [
        *("plan", "simulate", "run", "compare", "report", "replay", "explain"),
        *("trace import swim", "pools import"),
    ],
)
def test_help_shows_an_example(command: str, slotwise: Any) -> None:
    """The help of every command has a line to copy."""
    done = slotwise(*command.split(), "--help")
    assert done.exit_code == 0
    assert f"slotwise {command} " in done.stdout.replace("Usage: ", "").split("Options")[0]


def test_pools_are_printed_and_what_has_no_counterpart_is_named(
    slotwise: Any, folder: Path
) -> None:
    """The pools on stdout, the names on stderr, also of pools in which no task may run."""
    values = "<maxAMShare>1</maxAMShare><maxResources>vcores=0</maxResources>"
    queue = f"<queue name='a'>{values}</queue>"
    (folder / "fair-scheduler.xml").write_text(f"<allocations>{queue}</allocations>")
    done = slotwise("pools", "import", "fair-scheduler.xml")
    assert (done.exit_code, done.stdout) == (0, 'pools:\n  - {name: "a", slots_max: 0}\n')
    assert done.stderr == (
        "no counterpart: maxAMShare of a (line 1)\n"
        "closed: pool 'a', because its slots_max is 0\n"
    )


@pytest.mark.parametrize("command", ["", "plan", "simulate", "run", "compare", "trace import"])
def test_help_shows_no_type_for_options_that_take_no_value(command: str, slotwise: Any) -> None:
    """Such as `--version`."""
    done = slotwise(*command.split(), "--help")
    assert done.exit_code == 0
    assert "--help" in done.stdout
    assert "bool" not in done.stdout


def test_the_reason_of_a_failure_is_printed_once_and_in_the_last_line(
    slotwise: Any, folder: Path
) -> None:
    """Its four attempts and the failed job do not repeat it, nor does the table."""
    job = "{id: bad, command: 'echo broken >&2; exit 3', output: bad}"
    (folder / "bad.yaml").write_text(f"slotwise: 1\njobs: [{job}]\n")
    done = slotwise("run", "bad.yaml", "--slots", "1")
    assert done.exit_code == 1
    assert done.stderr.count("\nbroken\n") == 1
    assert done.stderr.count("the command exited with code 3") == 2
    assert re.search(r"; the command exited with code 3; see /.*/bad/0.4.err$", done.stderr)
    assert done.stderr.count("failed for the same reason") == 3
    assert "code 3" not in done.stdout


def test_a_file_that_another_run_resumes_is_refused(slotwise: Any, folder: Path) -> None:
    """Before it says what is left to run."""
    (folder / "once.yaml").write_text("slotwise: 1\njobs: [{id: a, command: 'true'}]\n")
    with DoneRecord("once.yaml").in_use(refuses=True):
        done = slotwise("run", "once.yaml", "--resume")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("slotwise: another run of ")
    assert "jobs are done" not in done.stderr


def test_the_closing_table_begins_with_failures(slotwise: Any, folder: Path) -> None:
    """The failed jobs, then those cancelled with them; the table has all as in the file."""
    jobs = (
        "[{id: later, after: [bad], command: 'true'}, {id: bad, command: 'exit 3'},"
        " {id: good, command: 'true'}]"
    )
    (folder / "bad.yaml").write_text(f"slotwise: 1\njobs: {jobs}\n")
    done = slotwise("run", "bad.yaml", "--slots", "1")
    ends = [line for line in done.stderr.splitlines() if line.startswith("slotwise: flex: job")]
    assert [line.split()[3:5] for line in ends] == [["bad", "failed:"], ["later", "cancelled:"]]
    assert ends[1].endswith("job 'bad', for which it waits, has failed")
    assert [line.split()[:2] for line in done.stdout.splitlines()[4:7]] == [
        ["later", "cancelled"],
        ["bad", "failed"],
        ["good", "done"],
    ]


def test_many_jobs_and_failures_are_cut(slotwise: Any, folder: Path) -> None:
    """The reasons of some are printed, and a table of some; each says what is left out."""
    array = ", ".join(
        f"{{id: j{number:02}, after: [j00], command: 'true'}}" for number in range(1, 60)
    )
    (folder / "bad.yaml").write_text(
        f"slotwise: 1\njobs: [{{id: j00, command: 'exit 3'}}, {array}]\n"
    )
    done = slotwise("run", "bad.yaml", "--slots", "1")
    assert done.exit_code == 1
    ends = [line for line in done.stderr.splitlines() if line.startswith("slotwise: flex: ")]
    assert len(ends) == MAX_FAILED + 1
    assert ends[-1] == "slotwise: flex: and 40 more jobs (40 cancelled); --json names all"
    assert "and 10 more: 10 cancelled; --json names all jobs" in done.stdout


def test_a_live_run_prints_the_hosts_that_come_and_go() -> None:
    """As those of a Dask cluster do."""
    console = Console(file=StringIO(), width=80)
    with Progress(console, "fair, live") as record:
        record(1.0, [HostRemoved(1.0, "a"), HostAdded(1.0, Host("b", {"task": 2}))], [])
    assert isinstance(console.file, StringIO)
    assert [line.split("s  ")[1] for line in console.file.getvalue().splitlines()] == [
        "host a: left",
        "host b: joined",
    ]
