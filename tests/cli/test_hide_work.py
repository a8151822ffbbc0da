"""`--hide-work` of simulate and compare."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.test_history_known import arrived, seen
from slotwise import InputError, simulate
from slotwise.core.history import append_history
from slotwise.core.log import read_log


def test_a_comparison_says_that_work_was_hidden(slotwise: Any) -> None:
    """Below the table; without the option it does not say so."""
    for options, is_said in (((), False), (("--hide-work",), True)):
        done = slotwise("compare", "jobs.yaml", *options)
        assert (done.exit_code, done.stderr) == (0, "")
        assert ("simulated with hidden work;" in done.stdout) == is_said


def test_the_bound_is_that_of_the_stated_work(slotwise: Any) -> None:
    """A simulation without noise takes as long as stated, whether the scheduler knows it."""
    hidden, told = (
        json.loads(slotwise("simulate", "jobs.yaml", "--json", *options).stdout)
        for options in (("--hide-work",), ())
    )
    assert hidden["bound"] == pytest.approx(told["bound"])
    assert hidden["metrics"]["work_seconds"] == pytest.approx(500)


def test_a_report_of_both_tells_them_apart(slotwise: Any, folder: Path) -> None:
    """One run that knew the work and one that did not, of the same scheduler."""
    slotwise("simulate", "jobs.yaml", "--log", "known.jsonl")
    slotwise("simulate", "jobs.yaml", "--hide-work", "--log", "hidden.jsonl")
    done = slotwise("report", "known.jsonl", "hidden.jsonl", "-o", "page.html")
    assert done.exit_code == 0, done.stderr
    page = (folder / "page.html").read_text()
    assert "flex (simulated)" in page
    assert "flex (simulated with hidden work)" in page


def test_a_history_does_not_reveal_the_work(slotwise: Any, folder: Path) -> None:
    """The tasks take what the history says; the scheduler gets the speeds of the hosts only."""
    (folder / "in").mkdir()
    (folder / "in" / "book.txt").write_text(("word " * 199 + "end.\n") * 12)
    (folder / "words.yaml").write_text(
        """\
slotwise: 1
cluster: {hosts: [{name: h1, slots: 1}, {name: h2, slots: 1}]}
jobs:
  - {id: words, program: wordcount, inputs: "in/*.txt", output: words, reducers: 1,
     split_bytes: 1000}
"""
    )
    tasks = seen(20, "h1", 1.0) + seen(12, "h2", 0.5) + seen(1, "h1", 1.0, "reduce")
    append_history(folder / "h.db", tasks)
    options = ("--history", "h.db", "--hide-work", "--log", "run.jsonl", "--json")
    done = slotwise("simulate", "words.yaml", *options)
    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(done.stdout)["metrics"]["work_seconds"] == pytest.approx(132)
    log = read_log(folder / "run.jsonl")
    assert arrived(log) == {"map": None, "reduce": None}
    assert [host.speed for host in log.header.cluster.hosts] == [1.0, pytest.approx(0.5)]


def test_live_runs_hide_nothing(slotwise: Any) -> None:
    """The tasks that sleep take the work that is stated."""
    done = slotwise("compare", "jobs.yaml", "--live", "--hide-work")
    assert done.exit_code == 2
    assert "--hide-work: for simulations only" in done.stderr


def test_in_python_it_is_a_parameter_of_the_simulation(folder: Path) -> None:
    """As a keyword of simulate it is refused, and the message says where it belongs."""
    with pytest.raises(InputError, match=r"give simulation=Simulation\(hide_work=...\)"):
        simulate("jobs.yaml", hide_work=True)  # type: ignore[call-arg]
