"""Workflows of commands on the agents of a Dask cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dask_processes import DaskProcesses, dask_processes
from slotwise import Session, SlotwiseError
from slotwise.cli.main import app
from slotwise.core.events import TaskFailed, TaskFinished
from slotwise.core.log import read_log

PAGE = Path(__file__).parents[3] / "docs" / "tutorials" / "workflow.md"
FILES = re.compile(r"^```\w+\n# ([\w.]+\.(?:py|yaml))\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskProcesses]:
    """A cluster of two workers with one thread each."""
    with dask_processes(tmp_path_factory.mktemp("dask"), "one", "two") as made:
        yield made


@pytest.fixture
def slotwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Calls a command in the folder of the tutorial; its exit code, stdout and stderr."""
    for name, text in FILES.findall(PAGE.read_text()):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(app, list(arguments))
        return done.exit_code, done.stdout, done.stderr

    return call


def ends(log: Path, kind: type[TaskFinished] | type[TaskFailed]) -> dict[str, float]:
    """When the last task of each job ended in this way."""
    events = [event for turn in read_log(log).turns for event in turn.events]
    return {event.phase.job: event.at for event in events if isinstance(event, kind)}


@pytest.mark.slow
def test_the_tutorial_of_workflows_on_agents(
    cluster: DaskProcesses, tmp_path: Path, slotwise: Callable[..., tuple[int, str, str]]
) -> None:
    """A step fails, those that wait for it are cancelled, and mended it is resumed."""
    run = ("run", "workflow.yaml", "--dask", cluster.address)
    code, _, told = slotwise(*run)
    (error,) = tmp_path.glob("state/slotwise/runs/*/logs/report/0.1.err")
    assert code == 1
    assert re.search(
        r"job report failed: task 0 of job report \(python3 report.py low.txt high.txt\): on"
        r" host (one|two): NameError: name 'lo' is not defined.*; the command exited with code"
        rf" 1; its output: {re.escape(str(error))}\n",
        told,
    )
    assert "job publish cancelled: job 'report', for which it waits, has failed\n" in told
    assert slotwise("logs", "report")[1] == error.read_text()
    assert slotwise("logs", "score", "2")[1] == "scored 5 pairs of part-02\n"
    assert "for which it waits, has failed" in slotwise("explain", "--job", "publish")[1]

    script = tmp_path / "report.py"
    script.write_text(script.read_text().replace("{lo}", "{low}"))
    code, _, told = slotwise(*run, "--resume", "--log", "second.jsonl")
    assert code == 0, told
    assert "10 of 12 jobs are done; 2 run\n" in told
    assert (tmp_path / "report.txt").read_text() == "scores from 2 to 1560\n"
    assert [*ends(tmp_path / "second.jsonl", TaskFinished)] == ["report", "publish"]
    assert "it waited for job report" in slotwise("explain", "--job", "publish")[1]


def test_each_task_follows_its_own_on_agents(
    cluster: DaskProcesses, tmp_path: Path, slotwise: Callable[..., tuple[int, str, str]]
) -> None:
    """A task of the second array begins while one of the first still waits for it."""
    first = "if test $SLOTWISE_TASK = 0; then until test -e 1; do sleep 0.02; done; fi"
    (tmp_path / "two.yaml").write_text(
        f"slotwise: 1\njobs:\n  - {{id: first, tasks: 2, command: {first!r}}}\n"
        "  - {id: second, tasks: 2, command: 'touch $SLOTWISE_TASK', after_each: [first]}\n"
    )
    code, _, told = slotwise("run", "two.yaml", "--dask", cluster.address)
    assert code == 0, told
    assert (tmp_path / "0").exists()


def test_words_attempts_and_limits_of_commands_on_agents(
    cluster: DaskProcesses, tmp_path: Path
) -> None:
    """Futures are words, an attempt follows after a delay, and a limit ends an attempt."""
    log = tmp_path / "log.jsonl"
    with Session(dask=cluster.address, log=log) as session:
        numbers = session.command("seq 1 4", id="numbers")
        large = session.submit(str.__mul__, "x", 100_000)
        words = ["sh", "-c", "cat $0/*.out; echo ${#1}", numbers, large]
        both = session.command(words, id="both")
        again = "test $SLOTWISE_ATTEMPT = 2"
        delayed = session.command(again, id="delayed", attempts=2, retry_delay=0.5)
        slow = session.command("sleep 3600", id="slow", time_limit=0.5, attempts=1)
        assert Path(both.result(), "task-00000.out").read_text() == "1\n2\n3\n4\n100000\n"
        assert delayed.result()
        with pytest.raises(SlotwiseError, match=r"exceeded its time limit of 0\.5 s"):
            slow.result()
    assert ends(log, TaskFinished)["delayed"] - ends(log, TaskFailed)["delayed"] >= 0.5
