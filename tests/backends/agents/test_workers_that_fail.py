"""Dask workers that are killed, frozen, or lack slotwise, and what a user is told."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen

import dask.config
import pytest
from distributed import Client

import slotwise
from backends.local.calling import TIMEOUT
from dask_processes import dask_processes, frozen
from slotwise import MapReduce, Session
from slotwise.backends.agents import dask_workers
from slotwise.backends.local.worker import summary
from slotwise.core.errors import InputError, SlotwiseError
from waiting import until

LACKS = r"host 'bare': slotwise is not installed; install it .* pip install 'slotwise"


def lines(capsys: pytest.CaptureFixture[str], told: list[str]) -> list[str]:
    """What slotwise has told until now."""
    told += [x for x in capsys.readouterr().err.splitlines() if x.startswith("slotwise")]
    return told


@pytest.mark.slow
def test_that_no_host_is_left_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the remedy; a worker that begins later runs what waits."""
    told: list[str] = []
    with (
        dask_processes(tmp_path, "a", "b") as cluster,
        Session(dask=cluster.address) as session,
    ):
        calls = [session.submit(time.sleep, 0.5) for _ in range(4)]
        cluster.kill("a")
        cluster.kill("b")
        until(lambda: lines(capsys, told))
        time.sleep(2.5)  # For further looks.
        (line,) = lines(capsys, told)
        assert "no host is left: jobs wait until one joins or responds; start a worker" in line
        assert f"`dask worker {cluster.address}`" in line
        cluster.start("c")
        assert [call.result(TIMEOUT) for call in calls] == [None] * 4
    assert lines(capsys, told)[1:] == ["slotwise: a host reconnected; jobs continue"]


def test_a_killed_agent_is_told_once_and_asked_for_seldom(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Dask worker goes on, whose log is not filled."""
    monkeypatch.setattr(dask_workers, "POLL_SECONDS", 0.05)
    told: list[str] = []
    with (
        dask_processes(tmp_path, "a", "b") as cluster,
        Session(dask=cluster.address, scheduler="fifo") as session,
    ):
        session.remove_host("b")
        os.kill(session.submit(os.getppid).result(TIMEOUT), 9)
        until(lambda: len(lines(capsys, told)) == 2)
        time.sleep(4.0)
        assert len(lines(capsys, told)) == 2
    (left_out,) = [line for line in told if "left out" in line]
    assert "host 'a': its agent has ended" in left_out
    assert left_out.endswith("restart this Dask worker")
    log = (tmp_path / "worker.log").read_text()
    assert 3 <= log.count("'begin_agent'") <= 6


def test_a_worker_without_slotwise_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others are used. It is a worker of Dask as before, also if it comes later."""
    with dask_processes(tmp_path, "a") as cluster:
        cluster.start("bare", lacks_slotwise=True)
        with Session(dask=cluster.address) as session:
            assert [host.name for host in session.hosts()] == ["a"]
            cluster.start("later", lacks_slotwise=True)
            told: list[str] = []
            until(lambda: len(lines(capsys, told)) == 2)
            assert session.submit(len, "abc").result(TIMEOUT) == 3
            assert cluster.workers["later"].poll() is None
    assert [line.split(":")[:2] for line in told] == [
        ["slotwise", " a worker of the Dask cluster is left out"]
    ] * 2


def test_a_cluster_without_slotwise_is_refused(tmp_path: Path) -> None:
    """With the worker and the remedy."""
    with dask_processes(tmp_path) as cluster:
        cluster.start("bare", lacks_slotwise=True)
        with pytest.raises(SlotwiseError, match=LACKS):
            Session(dask=cluster.address)


@pytest.mark.slow
def test_a_frozen_worker_does_not_delay_a_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left out, and joins when it answers."""
    monkeypatch.setattr(dask_workers, "ANSWER_SECONDS", 1.0)
    with dask_processes(tmp_path, "a", "b") as cluster:
        with frozen(cluster.workers["b"]):
            session = Session(dask=cluster.address)
            assert [host.name for host in session.hosts()] == ["a"]
            (line,) = lines(capsys, [])
            assert "host 'b': its Dask worker does not answer; it joins when it does" in line
        with session:
            until(lambda: len(session.hosts()) == 2)
            assert list(session.map(abs, [-1, -2])) == [1, 2]


def test_a_cluster_of_frozen_workers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no session that they could join later."""
    for name in ("ANSWER_SECONDS", "START_SECONDS"):
        monkeypatch.setattr(dask_workers, name, 0.5)
    remedy = "host 'a': its Dask worker does not answer; restart it; start a worker, such as"
    with (
        dask_processes(tmp_path, "a") as cluster,
        frozen(cluster.workers["a"]),
        pytest.raises(SlotwiseError, match=remedy),
    ):
        Session(dask=cluster.address)


@pytest.mark.slow
def test_jobs_fail_when_their_hosts_end_with_the_scheduler(tmp_path: Path) -> None:
    """The workers of Dask end with it; no others can join."""
    with (
        dask_processes(tmp_path, "a") as cluster,
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
    ):
        session = Session(dask=cluster.address)
        call = session.submit(time.sleep, 60)
        until(call.running)
        cluster.scheduler.kill()
        with pytest.raises(SlotwiseError, match="no host is left, and none can join: the conn"):
            call.result(TIMEOUT)
        with pytest.raises(SlotwiseError, match="no host is left"):
            session.submit(abs, 1)
        session.close()


def test_failures_name_their_host(tmp_path: Path) -> None:
    """Of commands, programs and calls; one that lacks a module has the remedy."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.txt").write_text("a b\n")

    def lacks(value: str) -> object:
        return importlib.import_module("no_such_module")

    class Lacks(MapReduce):
        def map(self, key: object, value: str) -> Iterator[tuple[object, object]]:
            yield lacks(value), 1

    jobs = [
        slotwise.command("exit 3", tmp_path / "one", id="one"),
        slotwise.mapreduce(Lacks(), tmp_path / "in", tmp_path / "two", id="two"),
    ]
    with dask_processes(tmp_path, "a") as cluster:
        failed = slotwise.run(jobs, "fair", dask=cluster.address).failed
        with Session(dask=cluster.address) as session:
            error = session.submit(lacks, "").exception(TIMEOUT)
    assert error is not None
    assert failed["one"].endswith("on host a: the command exited with code 3")
    assert "on host a: " in failed["two"]
    for text in (failed["two"], "\n".join(error.__notes__)):
        assert "install no_such_module on host a, in the environment of its Dask worker" in text
    assert summary(error) == "ModuleNotFoundError: No module named 'no_such_module'"


@pytest.mark.slow
def test_a_worker_that_answers_as_the_session_ends_loses_its_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although nobody has taken the answer; the connection ends, too."""
    with dask_processes(tmp_path, "a") as cluster:
        session = Session(dask=cluster.address)
        with session, monkeypatch.context() as patched:
            patched.setattr(dask_workers.DaskWorkers, "_take", lambda _: [])
            cluster.start("b")
            until(lambda: agent_folders(tmp_path / "b"))
            time.sleep(2.0)  # For the connection.
        until(lambda: not agent_folders(tmp_path / "b"))


def agent_folders(folder: Path) -> list[Path]:
    """The folders that agents have made below that of a Dask worker."""
    return list(folder.rglob("slotwise-*"))


@pytest.mark.slow
def test_a_session_ends_although_the_scheduler_is_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some seconds; one does not begin then, and says why."""
    monkeypatch.setattr(dask_workers, "SCHEDULER_SECONDS", 0.5)
    with (
        dask_processes(tmp_path, "a") as cluster,
        Client(cluster.address, set_as_default=False) as client,
    ):
        session = Session(dask=client)
        with frozen(cluster.scheduler):
            assert session.submit(len, "abc").result(TIMEOUT) == 3
            session.close()
            with pytest.raises(SlotwiseError, match=r"does not answer: timed out after 0\.5"):
                Session(dask=client)


def test_a_client_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    """A closed one, one that is asynchronous, and what is none."""

    async def begin(address: str) -> None:
        async with Client(address, asynchronous=True, set_as_default=False) as client:
            with pytest.raises(
                InputError, match="dask is asynchronous; expected a distributed"
            ):
                Session(dask=client)

    with dask_processes(tmp_path) as cluster:
        asyncio.run(begin(cluster.address))
        with Client(cluster.address, set_as_default=False) as client:
            pass
        with pytest.raises(InputError, match="dask is closed; expected"):
            Session(dask=client)
        with pytest.raises(InputError, match="dask is a DaskProcesses; expected"):
            Session(dask=cluster)


@pytest.mark.slow
def test_a_run_shows_what_was_done_before_all_hosts_were_lost(tmp_path: Path) -> None:
    """Its exit code is that of jobs that failed."""
    (tmp_path / "jobs.yaml").write_text(
        "slotwise: 1\njobs:\n"
        "  - {id: quick, phases: [{name: all, tasks: 1, work: 0.01}]}\n"
        "  - {id: long, phases: [{name: all, tasks: 1, work: 60}]}\n"
    )
    command = [sys.executable, "-m", "slotwise", "run", "jobs.yaml", "--dask"]
    with dask_processes(tmp_path, "a") as cluster:
        command += [cluster.address]
        with Popen(command, cwd=tmp_path, stdout=PIPE, stderr=PIPE, text=True) as run:
            assert run.stderr is not None
            assert any("quick: done" in line for line in run.stderr)
            cluster.scheduler.kill()
            shown, said = run.communicate(timeout=TIMEOUT)
    assert run.returncode == 1, said
    assert "quick" in shown
    assert "slotwise: no host is left, and none can join" in said
