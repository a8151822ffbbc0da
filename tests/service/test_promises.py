"""Promises of dates by a server: refused with a date, stored, kept by the next server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from slotwise.cli.main import app
from waiting import until

QUOTA = """
[[pools]]
name = "few"
promises_max_per_user = 1
"""


def submitted(url: str, *words: str) -> Any:
    """What `slotwise submit` answers."""
    return CliRunner().invoke(app, ["submit", *words], env={"SLOTWISE_SERVER": url})


def promised(server: Any, job: str) -> bool:
    """Whether a job has an open promise."""
    return "its end is promised" in str(server.get(f"/v1/jobs/{job}/explain"))


def test_a_promise_survives_a_crash(
    make_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next server does not ask again. What is refused is not stored."""
    monkeypatch.chdir(tmp_path)
    server = make_server("--slots", "1", "--scheduler", "fair")
    long = ("--time-limit", "100", "--promise", "5m", "--", "sleep", "90")
    assert submitted(server.url, "--id", "a", *long).exit_code == 0
    done = submitted(server.url, "--id", "b", *long)
    assert done.exit_code == 0, done.stderr
    refused = submitted(server.url, "--id", "c", "--array", "4", *long)
    assert refused.exit_code == 2
    assert re.search(
        r"job 'c': \S+ cannot be promised: .*; the earliest date that could be promised now is"
        r" [-\d: ]+;",
        refused.stderr.replace("\n", " "),
    )
    assert [job["id"] for job in server.get("/v1/jobs")["jobs"]] == ["a", "b"]
    until(lambda: promised(server, "a") and promised(server, "b"))
    server.restart()
    until(lambda: promised(server, "a") and promised(server, "b"))
    assert submitted(server.url, "--id", "c", "--array", "4", *long).exit_code == 2
    shown = CliRunner().invoke(app, ["status", "a"], env={"SLOTWISE_SERVER": server.url})
    assert re.search(r"^promise: .*\(in \d m\)$", shown.stdout, re.M), shown.stdout
    for job in "ab":
        server.post(f"/v1/jobs/{job}/cancel")


def test_a_user_has_a_quota(
    make_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a pool, also for jobs of one submission, of which all are accepted or none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "service.toml").write_text(QUOTA)
    server = make_server("--slots", "2", "--config", str(tmp_path / "service.toml"))
    jobs = "slotwise: 1\njobs:\n" + "".join(
        f"  - {{id: {name}, pool: few, promise: 1h, time_limit: 60, command: [sleep, '50']}}\n"
        for name in "ab"
    )
    (tmp_path / "jobs.yaml").write_text(jobs)
    refused = submitted(server.url, "jobs.yaml")
    assert refused.exit_code == 2
    assert "promises_max_per_user" in refused.stderr
    assert server.get("/v1/jobs")["jobs"] == []
    one = ("--pool", "few", "--time-limit", "60", "--promise", "1h", "--", "sleep", "50")
    assert submitted(server.url, "--id", "x", *one).exit_code == 0
    assert submitted(server.url, "--id", "y", *one).exit_code == 2
    server.post("/v1/jobs/x/cancel")
    until(lambda: submitted(server.url, "--id", "z", *one).exit_code == 0)


def test_a_promise_that_was_broken_is_not_broken_again_after_a_restart(
    make_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it breaks since the job is on hold; released, it runs without."""
    monkeypatch.chdir(tmp_path)
    server = make_server("--slots", "1", "--scheduler", "fair")
    words = ("--time-limit", "60", "--promise", "1h", "--", "sleep", "50")
    assert submitted(server.url, "--id", "block", "sleep", "50").exit_code == 0
    assert submitted(server.url, "--id", "a", *words).exit_code == 0
    until(lambda: promised(server, "a"))
    server.post("/v1/jobs/a/hold")
    until(lambda: "pools were changed" in str(server.get("/v1/jobs/a/explain")))
    server.restart()
    server.post("/v1/jobs/a/release")
    until(lambda: "lacks" in str(server.get("/v1/jobs/a/explain")))
    assert "promised" not in str(server.get("/v1/jobs/a/explain"))
    for job in ("block", "a"):
        server.post(f"/v1/jobs/{job}/cancel")


def test_a_server_starts_with_a_promised_job_of_several_slots_on_hold(
    make_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On hold it may have no slot, and is promised its date as it was."""
    monkeypatch.chdir(tmp_path)
    server = make_server("--slots", "2")
    wide = ("--slots", "2", "--time-limit", "60", "--promise", "1h", "--", "sleep", "50")
    assert submitted(server.url, "--id", "block", "--slots", "2", "sleep", "50").exit_code == 0
    done = submitted(server.url, "--id", "a", *wide)
    assert done.exit_code == 0, done.stderr
    server.post("/v1/jobs/a/hold")
    server.restart()
    assert submitted(server.url, "--id", "b", "true").exit_code == 0
    server.post("/v1/jobs/block/cancel")
    until(lambda: server.get("/v1/jobs/b")["state"] == "done")
    server.post("/v1/jobs/a/cancel")
