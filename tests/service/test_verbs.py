"""The commands that ask a server, with a real one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from slotwise import Client, Job, Phase, Tasks
from slotwise.cli.main import app
from waiting import until


class Shell:
    """Calls commands for a server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._environ = {"SLOTWISE_SERVER": url}

    def __call__(self, *words: str) -> Result:
        """Call a command."""
        return CliRunner().invoke(app, list(words), env=self._environ)

    def json(self, *words: str) -> Any:
        """What a command prints with --json."""
        done = self(*words, "--json")
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def slotwise(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Commands for the server, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return Shell(server.url)


def test_a_command_from_submission_to_its_output(slotwise: Shell) -> None:
    """It waits for another one, runs here with our variables, and is listed and explained."""
    words = ("--id", "a", "--env", "A=out", "--array", "2")
    assert slotwise("submit", *words, "echo $SLOTWISE_TASK > $A$SLOTWISE_TASK").stdout == "a\n"
    done = slotwise("submit", "--after", "a", "--follow", "--", "cat", "out0", "out1")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "0\n1\n", "2\n")
    assert [job["id"] for job in slotwise.json("list", "--all")["jobs"]] == ["a", "2"]
    assert slotwise("status", "a").stdout.startswith("job a of 2 tasks in pool default: done")
    assert slotwise("explain", "a").stdout == "job a is over: done\n"


def test_a_job_that_is_held_moved_and_cancelled(slotwise: Shell) -> None:
    """Each verb changes it; waiting for it gives the code of a cancelled job."""
    slotwise("submit", "--id", "a", "--hold", "--", "sleep", "100")
    assert slotwise.json("status", "a")["state"] == "held"
    assert slotwise("priority", "a", "high").exit_code == 0
    assert slotwise("priority", "a", "urgent").exit_code == 2
    assert slotwise.json("release", "a")["jobs"][0]["priority"] == "high"
    assert slotwise("wait", "a", "--timeout", "0").exit_code == 124
    assert slotwise("cancel", "a").exit_code == 0
    done = slotwise("wait", "a")
    assert (done.exit_code, "job a: cancelled" in done.stderr) == (130, True)


def test_running_and_next_jobs_are_found_in_a_long_queue(slotwise: Shell) -> None:
    """The running ones are older than those that a short list has."""
    for job in "abcde":
        slotwise("submit", "--id", job, "--", "sleep", "100")
    until(lambda: len(slotwise.json("list", "--state", "running")["jobs"]) == 2)
    found = slotwise.json("list", "--state", "running", "--limit", "2")["jobs"]
    assert [job["id"] for job in found] == ["a", "b"]
    found = slotwise.json("list", "--state", "queued", "--limit", "1")
    assert ([job["id"] for job in found["jobs"]], found["more"]) == (["e"], True)
    view = slotwise.json("top")
    assert [job["id"] for job in view["running"]] == ["a", "b"]
    assert [job["id"] for job in view["queue"]] == ["c", "d", "e"]
    assert len(slotwise.json("cancel", "--all")["jobs"]) == 5


def test_the_server_forecasts_when_jobs_end(slotwise: Shell, server: Any) -> None:
    """Those that run and those that wait, for commands, lists and clients."""
    for job in "abc":
        slotwise("submit", "--id", job, "--", "sleep", "100")
    until(lambda: all(job["eta"] for job in slotwise.json("eta", "a", "c")["jobs"]))
    first, last = (job["eta"] for job in slotwise.json("eta", "a", "c")["jobs"])
    assert first["start"] is None
    assert last["at"] <= last["start"]["low"] <= last["end"]["high"]
    rows = {job["id"]: job["eta"] for job in slotwise.json("list")["jobs"]}
    assert rows["c"]["end"]["median"] > rows["a"]["end"]["median"]
    with Client(server.url) as client:
        eta = client.eta("c")
        assert eta is not None
        assert eta.start is not None
        assert client.etas().keys() == {"a", "b", "c"}
        slotwise("cancel", "--all")
        assert client.wait("c") == "cancelled"
        assert client.eta("c") is None


def test_a_workload_file_runs_on_a_server(slotwise: Shell, tmp_path: Path) -> None:
    """With what its jobs print; it fails if one does."""
    text = "slotwise: 1\njobs:\n  - {id: a, command: echo from a}\n"
    text += "  - {id: b, command: exit 3, after: a, attempts: 1}\n"
    (tmp_path / "w.yaml").write_text(text)
    done = slotwise("run", "w.yaml")
    assert (done.exit_code, "==> a 0 stdout <==\nfrom a\n" in done.stdout) == (1, True)
    assert "exited with code 3" in done.stderr


def test_options_are_named_in_messages_of_the_server(slotwise: Shell) -> None:
    """As they are on the command line."""
    done = slotwise("submit", "--priority", "urgent", "true")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("slotwise: --priority is 'urgent'")


def test_the_server_its_pools_and_hosts(slotwise: Shell) -> None:
    """On a terminal as tables; here as text that has their names."""
    assert "0 of 2 busy" in slotwise("status").stdout
    assert slotwise("pools").stdout.split()[:2] == ["pool", "weight"]
    assert "0/2" in slotwise("workers").stdout
    assert {"server", "pools", "running", "queue"} == slotwise.json("top").keys()


def test_failed_and_held_jobs_are_told_as_they_are(slotwise: Shell) -> None:
    """The numbers of tasks by state; how a held job begins; no instant of the server."""
    words = ("--id", "a", "--array", "2", "--slots-max", "1", "--attempts", "1", "--wait")
    assert slotwise("submit", *words, "exit $SLOTWISE_TASK").exit_code == 1
    job = slotwise.json("status", "a")
    assert (job["tasks_done"], job["tasks_failed"]) == (1, 1)
    assert "1/2 done, 0 running, 1 failed" in slotwise("status", "a").stdout
    slotwise("submit", "--id", "b", "--hold", "--", "true")
    held = "`slotwise release b` lets its tasks begin"
    assert slotwise("explain", "b").stdout == f"job b is held: {held}\n"
    assert slotwise.json("status", "b")["reason"] == held
    assert Client(slotwise.url).job("a").explain().status.startswith("job a is over: failed")


def test_a_second_job_with_the_same_id_is_told(slotwise: Shell) -> None:
    """Scripts wait for the id that is printed."""
    assert slotwise("submit", "--id", "a", "--", "true").stderr == ""
    done = slotwise("submit", "--id", "a", "--", "true")
    assert done.stdout == "a-2\n"
    assert done.stderr == "slotwise: an earlier job has the id 'a'; that of this one is 'a-2'\n"


def test_a_repeated_key_is_named_beside_the_id(slotwise: Shell) -> None:
    """The job of the first submission is printed, though none has the id that was stated."""
    slotwise("submit", "--key", "k", "--id", "a", "--", "true")
    done = slotwise("submit", "--key", "k", "--id", "b", "--", "true")
    assert (done.exit_code, done.stdout) == (0, "a\n")
    assert "an earlier submission the key 'k'; that of this one is 'a'" in done.stderr


@pytest.mark.parametrize("more", [(), ("--follow",), ("--json",)])
def test_the_output_of_a_task_that_a_job_does_not_have(
    slotwise: Shell, more: tuple[str, ...]
) -> None:
    """It is refused at once with the numbers of the tasks, also while the job is held."""
    slotwise("submit", "--id", "a", "--array", "3", "--hold", "--", "true")
    done = slotwise("logs", "a", "3", *more)
    message = "slotwise: job 'a' has no task 3; name one from 0 to 2\n"
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", message)
    assert slotwise("cancel", "a").exit_code == 0


def test_an_unknown_state_is_refused(slotwise: Shell) -> None:
    """Otherwise a list of nothing would look as if there were no jobs."""
    done = slotwise("list", "--state", "runing")
    assert (done.exit_code, "state 'runing'" in done.stderr) == (2, True)
    assert "did you mean 'running'?" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("logs", "-f", "a"), "slotwise: interrupted\n"),
        (
            ("submit", "--follow", "--", "sh", "-c", "echo up; sleep 100"),
            "slotwise: interrupted; the server continues: `slotwise wait 2` waits for the jobs,"
            " and `slotwise cancel 2` ends them\n",
        ),
    ],
)
def test_ctrl_c_ends_the_wait_and_not_the_job(
    slotwise: Shell, words: tuple[str, ...], message: str
) -> None:
    """It says so where the jobs were submitted."""
    slotwise("submit", "--id", "a", "--", "sh", "-c", "echo up; sleep 100")
    with subprocess.Popen(
        [sys.executable, "-m", "slotwise", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SLOTWISE_SERVER": slotwise.url},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read().removeprefix("2\n") == message
    states = {job["state"] for job in slotwise.json("list")["jobs"]}
    assert states == {"running"}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_output_is_followed_across_a_restart(
    server: Any, slotwise: Shell, tmp_path: Path, number: int
) -> None:
    """What was printed before comes once."""
    script = "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two"
    slotwise("submit", "--id", "a", "--", "sh", "-c", script)
    with subprocess.Popen(
        [sys.executable, "-m", "slotwise", "logs", "-f", "a"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SLOTWISE_SERVER": slotwise.url},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "one\n"
        server.restart(number)
        (tmp_path / "go").touch()
        assert process.stdout.read() == "two\n"
        assert process.wait(60) == 0


def test_a_dry_run_says_when_a_job_would_end_and_who_is_later(slotwise: Shell) -> None:
    """By simulations of the server; nothing is submitted, and no number is used up."""
    slotwise("submit", "--id", "long", "--array", "8", "--", "sleep", "60")
    until(lambda: slotwise.json("status", "long")["tasks_running"])
    words = ("--deadline", "1s", "--array", "9", "--", "sleep", "50")
    found = slotwise.json("submit", "--json", "--dry-run", *words)
    assert (found["new"], found["deadlines"]) == (["new"], ["new"])
    new = found["jobs"][0]
    assert (new["before"], new["late_after"], new["user"]) == (None, 1.0, None)
    assert new["after"]["end"]["median"] > found["at"]
    shown = slotwise("submit", "--dry-run", *words).stdout
    assert re.search(
        r"^new: starts .*, ends .*; keeps its deadline with .* of 0%$", shown, re.M
    )
    refused = slotwise("submit", "--dry-run", "--wait", "--", "true")
    assert (refused.exit_code, "leave out --wait" in refused.stderr) == (2, True)
    asks = ("--promise", "1d", "--time-limit", "9s", "--", "sleep", "5")
    shown = slotwise("submit", "--dry-run", *asks)
    assert "; its promise could be given now" in shown.stdout, shown.stderr
    refused = slotwise("submit", "--dry-run", "--promise", "1s", "--", "sleep", "50")
    assert (refused.exit_code, "cannot be promised" in refused.stderr) == (2, True)
    assert slotwise("submit", "--", "true").stdout == "2\n"


def test_what_if_shows_both_courses(slotwise: Shell) -> None:
    """Of other hosts and pools; a client of Python has the same."""
    slotwise("submit", "--id", "long", "--array", "20", "--", "sleep", "60")
    until(lambda: slotwise.json("status", "long")["tasks_running"])
    words = ("what-if", "--host", "h9:8", "--weight", "default=2")
    found = slotwise.json(*words)
    (row,) = found["jobs"]
    assert row["delay"] < 0
    assert row["user"] == slotwise.json("status", "long")["user"]
    shown = slotwise(*words).stdout.split()
    assert {"mean", "response", "long", "then"} <= set(shown)
    with Client(slotwise.url) as client:
        assert [one.job for one in client.what_if(hosts={"h9": 8}).jobs] == ["long"]
        assert client.what_if(["sleep", "5"]).jobs[0].before is None
        assert client.what_if(Job("j", (Phase("p", Tasks(1, 5.0)),))).jobs[0].job == "j"
        client.job("long").cancel()
    for option, value, message in (
        ("--slots-max", "held=4", "pools: 'held' has the jobs on hold"),
        ("--resources-max", "default=gpu=-1", "resources_max: gpu is -1.0; give a number"),
        ("--resources-max", "default=memroy=1", "has 'memroy', which no host has"),
        ("--resources-max", "gpu=1", "expected POOL=RESOURCE=AMOUNT"),
        ("--host", "h9:0", "hosts: 'h9' has no slots; give it at least 1"),
        ("--host", f"h9:{10**20}", "give it at most 10000000"),
        ("--scheduler", "easy", "cannot be replaced by easy"),
    ):
        wrong = slotwise("what-if", option, value)
        assert (wrong.exit_code, message in wrong.stderr) == (2, True), wrong.stderr
    wrong = slotwise("what-if", "--weight", "default")
    assert (wrong.exit_code, "expected NAME=VALUE" in wrong.stderr) == (2, True)
