"""The commands that ask a server, with one of recorded answers."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fake_service import FakeService, fake_service
from slotwise.__main__ import VERBS
from slotwise.cli import following, users
from slotwise.cli import service as verbs
from slotwise.cli.following import exit_code
from slotwise.cli.submit import entry_of, parse_words, request_of
from slotwise.service.clients.transport import NoServerError, ServerClosedError

TIMEOUT = 60.0


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeService]:
    """A server with two jobs, at the place of the user's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("SLOTWISE_SERVER", raising=False)
    folder = tmp_path / "slotwise/service"
    folder.mkdir(parents=True)
    with fake_service(folder / "socket") as found:
        found.add("17")
        found.add("train", state="failed", code=3, reason="it exited with code 3", ended=1.7e9)
        yield found


def plain(done: Result) -> Any:
    """The JSON that a command has printed."""
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_words_of_a_command_are_not_options() -> None:
    """The first word that is not an option begins it, as `--` does."""
    words = ["--pool", "team", "--weight=2", "python", "a.py", "--pool", "x"]
    found = parse_words(words)
    assert found is not None
    assert found == ({"pool": "team", "weight": 2}, None, ["python", "a.py", "--pool", "x"])
    assert parse_words(["--hold", "--", "--odd"]) == ({"hold": True}, None, ["--odd"])
    assert parse_words(["--pool", "a", "--help", "x"]) is None


def test_options_become_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the values that a workload file has; paths are absolute."""
    monkeypatch.chdir(tmp_path)
    words = "--id a --after 1 --after b --after-failed run --array 0-9 --gpu 1 --memory 8GiB"
    words += " --resources license=2 --slots-max 3 --attempts 2 --retry-delay 5 --time-limit 2h"
    words += " --time-requested 90"
    words += " --no-retry 3 --no-restart --env A=b=c --output out --cwd . -- run {task}"
    found = parse_words(words.split())
    assert found is not None
    assert entry_of(found.options, found.command) == {
        "id": "a",
        "after": ["1", "b"],
        "after_failed": "run",
        "slots_max": 3,
        "attempts": 2,
        "retry_delay": 5.0,
        "time_limit": "2h",
        "time_requested": 90.0,
        "command": ["run", "{task}"],
        "tasks": 10,
        "resources": {"license": 2, "gpu": 1, "memory": "8GiB"},
        "no_retry": [3],
        "restart": False,
        "env": {"A": "b=c"},
        "output": str(tmp_path / "out"),
        "cwd": str(tmp_path),
    }


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["echo a | wc"], "echo a | wc"),
        (["--shell", "echo", "$HOME"], "echo $HOME"),
        (["echo"], ["echo"]),
        (["echo", "a b"], ["echo", "a b"]),
    ],
)
def test_one_word_with_signs_of_a_shell_is_a_line(words: list[str], command: object) -> None:
    """So is what follows --shell."""
    found = parse_words(words)
    assert found is not None
    assert entry_of(found.options, found.command)["command"] == command


def test_a_deadline_is_an_instant() -> None:
    """Of the clock of this machine."""
    found = parse_words(["--deadline", "2h", "true"])
    assert found is not None
    at = request_of(found)["jobs"][0]["deadline"]["at"]
    assert 0 <= time.time() + 7200 - at < TIMEOUT


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("submit", "nothing to submit"),
        ("submit --pol a -- b", "did you mean '--pool'?"),
        ("submit --mem 1 -- b", "did you mean '--memory'?"),
        ("submit --slots x -- b", "--slots is 'x'; expected a whole number"),
        ("submit --pool", "--pool needs a value"),
        ("submit --memory 5XB -- b", "--memory: memory is '5XB'"),
        ("submit --gpu 1.5 -- b", "--gpu: gpu is 1.5; give a whole number, or a part of one"),
        ("submit --gpu 1 --resources gpu=2 -- b", "--gpu and --resources both state gpu"),
        ("submit --memory lots -- b", "--memory is 'lots'"),
        ("submit --memory 8 -- b", "--memory is '8', in bytes; add a unit, as in 8GiB"),
        ("submit --json --follow -- b", "leave out --follow"),
        ("submit --array 1-x -- b", "--array is '1-x'"),
        ("submit --env A -- b", "expected NAME=VALUE"),
        ("submit --deadline soon -- b", "--deadline is 'soon'"),
        ("submit missing.yaml", "workload file 'missing.yaml' does not exist"),
        ("submit jobs.yaml --pool a", "--pool: for a command only"),
        ("cancel", "name the jobs to cancel"),
        ("status 99", "no job '99'"),
        ("wait 99", "no job '99'"),
        ("priority 99 high", "no job '99'"),
        ("list --server tcp:x", "expected unix:"),
        ("completion csh", "expected one of bash"),
        ("run jobs.yaml --server unix:/x --slots 2", "--slots: the server schedules"),
    ],
)
def test_bad_input_is_refused(
    slotwise: Any, service: FakeService, words: str, message: str
) -> None:
    """One message and exit code 2."""
    done = slotwise(*words.split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_a_server_the_message_names_the_command(
    slotwise: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked where there is no terminal."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for words in (["submit", "--", "true"], ["list"], ["pools"], ["wait", "1"]):
        done = slotwise(*words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "start one with `slotwise serve`" in done.stderr


def test_a_submission_prints_its_id(slotwise: Any, service: FakeService, folder: Path) -> None:
    """Alone outside a terminal. The server gets folder, environment, key and user."""
    done = slotwise("submit", "--key", "k", "--user", "eve", "--", "sleep", "9")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "3\n", "")
    path, _, body = service.asked[-1]
    assert (path, body["jobs"]) == ("/v1/jobs", [{"command": ["sleep", "9"]}])
    assert (body["key"], body["user"]) == ("k", "eve")
    assert body["folder"] == str(folder)
    assert body["environ"]["PATH"] == os.environ["PATH"]
    done = slotwise("submit", "--id", "x", "--wait", "--json", "true")
    assert plain(done) == {"jobs": [{"id": "x", "number": 4, "state": "queued"}]}


def test_a_workload_file_is_submitted(
    slotwise: Any, service: FakeService, folder: Path
) -> None:
    """All of its jobs, with dates as instants; keys that are not used are named."""
    text = "slotwise: 1\ncluster: {slots: 2}\nobjective: stretch\njobs:\n"
    text += "  - {id: a, command: sleep 9, deadline: 60, pool: team}\n"
    text += "  - {id: b, command: sleep 9, after: a}\n"
    (folder / "w.yaml").write_text(text)
    done = slotwise("submit", "w.yaml", "--hold", "--no-restart")
    assert (done.exit_code, done.stdout) == (0, "a\nb\n")
    assert "not used, because the server has its own: cluster, objective" in done.stderr
    body = service.asked[-1][2]
    first, second = body["jobs"]
    assert 0 <= time.time() + 60 - first.pop("deadline")["at"] < TIMEOUT
    assert first == {"id": "a", "command": "sleep 9", "pool": "team", "restart": False}
    assert second == {"id": "b", "command": "sleep 9", "after": "a", "restart": False}
    assert (body["folder"], body["hold"]) == (str(folder), True)


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ({"state": "done", "code": 0}, 0),
        ({"state": "failed", "code": 7}, 7),
        ({"state": "failed", "code": -9}, 137),
        ({"state": "failed", "code": None}, 1),
        ({"state": "lost", "code": None}, 1),
        ({"state": "cancelled", "code": -15}, 130),
    ],
)
def test_exit_codes_of_jobs(job: dict[str, Any], code: int) -> None:
    """The command's own, or one for how the job ended."""
    assert exit_code(job) == code


def test_waiting_exits_with_the_code_of_the_job(slotwise: Any, service: FakeService) -> None:
    """The largest of several; 124 if the time is over first."""
    service.add("ok", state="done", ended=1.0)
    assert slotwise("wait", "ok").exit_code == 0
    done = slotwise("wait", "ok", "train")
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr == "slotwise: job train: failed: it exited with code 3\n"
    assert slotwise("wait", "17", "ok", "--any").exit_code == 0
    assert slotwise("wait", "17", "--timeout", "0").exit_code == 124


def test_jobs_are_listed(slotwise: Any, service: FakeService) -> None:
    """Those that are not over, or those of states; in a pipe nothing if there are none."""
    done = slotwise("list")
    head, row = done.stdout.splitlines()
    assert head.split() == ["id", "state", "pool", "user", *head.split()[4:]]
    assert row.split()[:5] == ["17", "running", "team", "ann", "0/1"]
    assert [job["id"] for job in plain(slotwise("list", "--all", "--json"))["jobs"]] == [
        "17",
        "train",
    ]
    assert slotwise("list", "--state", "held").stdout == ""
    assert service.asked[-1][1]["state"] == "held"


def test_when_jobs_start_and_end_is_shown(slotwise: Any, service: FakeService) -> None:
    """As ranges, with their age and basis, and in columns of lists."""
    now = time.time()
    wait, end = (
        {"low": now + low, "median": now + 150, "high": high and now + high}
        for low, high in ((130, 290), (300, None))
    )
    eta = {"start": wait, "end": end, "at": now - 48 * 3600, "confidence": 0.8, "past": 1200}
    eta |= {"job": "18", "of_another": 0}
    service.add("18", state="queued", begun=None, eta=eta)
    found = plain(slotwise("eta", "18", "--json"))
    assert found["jobs"] == [{"id": "18", "state": "queued", "eta": eta}]
    head, row, sure, basis = slotwise("eta", "18").stdout.splitlines()
    assert head.split()[:4] == ["id", "state", "starts", "ends"]
    assert row.startswith("18  queued  in 2–5 min  after ")
    assert sure == "80 of 100 ranges are to hold what happens; 48.0 h old"
    assert basis.endswith("corrected by the errors of 1,200 earlier forecasts")
    both = slotwise("eta").stdout
    assert [line.split()[0] for line in both.splitlines()[1:3]] == ["17", "18"]
    assert {"starts", "ends"} <= set(slotwise("list").stdout.splitlines()[0].split())
    assert "in 2–5 min" in slotwise("top", "--once").stdout
    assert "starts:     in 2–5 min" in slotwise("status", "18").stdout
    service.add("18", state="queued", eta={**eta, "past": 0})
    assert "no earlier forecasts correct them yet" in slotwise("eta", "18").stdout
    service.add("18", state="queued", eta={**eta, "of_another": 500})
    assert "forecasts; 500 of them for another scheduler" in slotwise("eta", "18").stdout
    assert slotwise("eta", "none").exit_code == 2


def test_text_of_others_cannot_control_a_terminal(slotwise: Any, service: FakeService) -> None:
    """Control characters of names, commands and reasons are escaped, and markup is text."""
    bad = "\x1b]0;x\x07[red]"
    service.add("bad", user=bad, pool=bad, name=bad, reason=f"{bad}\n{bad}", state="held")
    for words in (["list"], ["status", "bad"], ["top"], ["explain", "17"]):
        done = slotwise(*words)
        assert (done.exit_code, "\x1b" in done.output, "\x07" in done.output) == (
            0,
            False,
            False,
        )
    assert "[red]" in slotwise("list").stdout


def test_the_state_of_the_server_and_of_a_job(slotwise: Any, service: FakeService) -> None:
    """In a few lines, or with all about the job and its tasks."""
    text = slotwise("status").stdout
    assert "slots: 1 of 4 busy; scheduler flex" in text
    assert "2 queued, 0 waiting, 0 held, 1 running" in text
    task = {"task": 4, "state": "running", "attempt": 2, "begun": 1.7e9, "ended": None}
    service.add("array", tasks=2, tasks_listed=[task, {**task, "task": 5}])
    text = slotwise("status", "array").stdout
    assert "job array of 2 tasks in pool team: running" in text
    assert [line.split()[:3] for line in text.splitlines()[-2:]] == [
        ["4", "running", "2"],
        ["5", "running", "2"],
    ]
    assert plain(slotwise("status", "--json"))["pid"] == 7


def test_jobs_are_changed(slotwise: Any, service: FakeService) -> None:
    """Without a message in a pipe; also those after one that is unknown."""
    for words, body in (
        ("priority 17 high", {"priority": "high"}),
        ("move 17 team", {"pool": "team"}),
        ("hold 17", {}),
        ("release 17", {}),
    ):
        done = slotwise(*words.split())
        assert (done.exit_code, done.output, service.asked[-1][2]) == (0, "", body)
    assert slotwise("cancel", "99", "17").exit_code == 2
    assert service.jobs["17"]["state"] == "cancelled"
    service.add("x")
    (job,) = plain(slotwise("cancel", "--all", "--json"))["jobs"]
    assert (job["id"], job["state"]) == ("x", "cancelled")


def test_pools_and_workers_are_shown(slotwise: Any, service: FakeService) -> None:
    """Numbers have three digits."""
    head, row = slotwise("pools").stdout.splitlines()
    assert dict(zip(head.split(), row.split(), strict=False))["weight"] == "2.67"
    assert "memory 1 GiB of 2 GiB" in row
    assert "h1" in slotwise("workers").stdout
    assert "gpu 1.00 of 2.00" in slotwise("workers").stdout
    assert plain(slotwise("pools", "--json"))["pools"][0]["name"] == "team"


def test_output_is_that_of_the_server_s_job(slotwise: Any, service: FakeService) -> None:
    """Of one task as it is; of several with headers."""
    header = {"run": 1, "phase": "run", "task": 0, "attempt": 1, "stream": "out"}
    service.output["17"] = [(header, b"a\xff"), ({**header, "stream": "err"}, b"e\n")]
    done = slotwise("logs", "17")
    assert (done.exit_code, done.stdout_bytes, done.stderr) == (0, b"a\xff", "e\n")
    service.add("array", tasks=2, state="done")
    service.output["array"] = [(header, b"a\n"), ({**header, "task": 1}, b"b\n")]
    shown = slotwise("logs", "-f", "array").stdout
    assert shown == "==> array 0 stdout <==\na\n\n==> array 1 stdout <==\nb\n"
    (line,) = slotwise("logs", "array", "1", "--attempt", "1", "--json").stdout.splitlines()[1:]
    assert json.loads(line) == {**header, "task": 1, "text": "b\n"}
    assert slotwise("explain", "17").stdout == "job 17 waits: \\x1b[31mno slot\n"


def test_a_run_on_a_server_follows_and_waits(
    slotwise: Any, service: FakeService, folder: Path
) -> None:
    """Output of several jobs has headers; the exit code is that of a run."""
    text = 'slotwise: 1\njobs: [{id: a, command: ["true"]}, {id: b, command: ["true"]}]\n'
    (folder / "w.yaml").write_text(text)
    header = {"run": 1, "phase": "run", "task": 0, "attempt": 1, "stream": "out"}
    service.output = {"a": [(header, b"from a\n")], "b": []}
    done = slotwise("run", "w.yaml", "--server", service.url)
    assert (done.exit_code, done.stderr) == (0, "slotwise: submitted a, b\n")
    assert done.stdout.startswith("==> a 0 stdout <==\nfrom a\n")
    assert [line.split()[:2] for line in done.stdout.splitlines()[-2:]] == [
        ["a", "done"],
        ["b", "done"],
    ]


def test_fast_commands_are_all_that_ask_a_server() -> None:
    """The names that __main__ has are those of the module."""
    assert {"submit", *verbs.COMMANDS, *users.COMMANDS, "token"} == VERBS


def test_a_submission_loads_no_scheduler(service: FakeService, folder: Path) -> None:
    """Nor the parser of other commands, or tables."""
    code = "import sys, slotwise.__main__ as m\ntry: m.main()\nfinally:\n"
    code += " print(sorted({'typer', 'rich', 'numpy', 'pydantic'} & set(sys.modules)))"
    words = [sys.executable, "-c", code, "submit", "--", "true"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n[]\n", "")


def test_names_are_completed(service: FakeService) -> None:
    """Jobs with their states, and pools."""
    assert verbs.complete_jobs("1") == [("17", "running")]
    assert verbs.complete_pools("te") == ["team"]


def test_a_shell_completes_jobs(service: FakeService) -> None:
    """By the script that `slotwise completion bash` prints."""
    line = {"COMP_WORDS": "slotwise cancel t", "COMP_CWORD": "2"}
    done = subprocess.run(
        [Path(sys.executable).with_name("slotwise")],
        env={**os.environ, **line, "_SLOTWISE_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.stdout.split() == ["train"]


@pytest.mark.parametrize(
    ("words", "typed", "expected"),
    [
        (
            ["submit", "--", "sleep", "9"],
            b"",
            b"job 3 is queued; `slotwise logs -f 3` follows it",
        ),
        (["cancel", "17", "train"], b"n\n", b"cancel 2 jobs? [y/N]:"),
        (["top"], b"q", b"scheduler flex"),
        (["list", "--state", "held"], b"", b"no jobs"),
    ],
)
def test_on_a_terminal(
    service: FakeService, words: list[str], typed: bytes, expected: bytes
) -> None:
    """A sentence, a question before several jobs are cancelled, and a live view that q ends."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "slotwise", *words])
    shown, until = b"", time.monotonic() + TIMEOUT
    try:
        while time.monotonic() < until:
            if not select.select([terminal], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(terminal, 4096)
            except OSError:
                break  # It has ended.
            if not data:
                break
            shown += data
            if typed and len(shown) > 10:
                os.write(terminal, typed)
                typed = b""
    finally:
        os.close(terminal)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert expected in shown
    assert service.jobs["17"]["state"] == "running"


def test_a_shell_in_a_removed_folder_is_told(tmp_path: Path, service: FakeService) -> None:
    """It has no path that a command could get."""
    script = f"mkdir gone && cd gone && rmdir ../gone && {sys.executable} -m slotwise submit ls"
    done = subprocess.run(script, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("slotwise: the folder of this shell no longer exists")


def test_a_wait_goes_on_with_the_next_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A restart does not end it; without a server from the beginning there is no wait."""
    monkeypatch.setattr(following, "ANY_SECONDS", 0.0)
    answers: list[Any] = [ServerClosedError("it has ended"), NoServerError("none listens")]
    answers += [{"state": "done"}, NoServerError("none listens")]

    class Restarted:
        def get(self, path: str, **query: Any) -> Any:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    transport: Any = Restarted()
    assert following.wait_for(transport, "a") == {"state": "done"}
    message = "slotwise: it has ended; waiting 60 s for another\n"
    assert capsys.readouterr().err == message
    with pytest.raises(NoServerError):
        following.wait_for(transport, "a")
