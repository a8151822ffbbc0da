"""`--outage` and `--true-speed`: hosts that are cut off, and slower than was said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slotwise.core.log import read_log

HOSTS = """\
slotwise: 1
cluster:
  grace: 5
  hosts: [{name: h1, slots: 1}, {name: "a=b", slots: 1}]
jobs: [{id: j, phases: [{name: map, work: 8, tasks: 2}]}]
"""


@pytest.mark.parametrize(
    ("options", "completion", "parameters"),
    [
        ("", 4.0, {}),
        ("--outage h1=1+5", 6.0, {"outages": [["h1", 1.0, 5.0]]}),
        ("--outage h1=1+6", 10.0, {"outages": [["h1", 1.0, 6.0]]}),
        (
            "--outage h1=1+1 --outage a=b=2.5+3",
            5.5,
            {"outages": [["h1", 1.0, 1.0], ["a=b", 2.5, 3.0]]},
        ),
        ("--true-speed h1=0.5 --true-speed a=b=2", 8.0, {"speeds": {"h1": 0.5, "a=b": 2.0}}),
    ],
)
def test_an_outage_delays_the_job_and_is_in_the_log(
    options: str, completion: float, parameters: dict[str, object], slotwise: Any, folder: Path
) -> None:
    """Two tasks of 4 s; the end of the one on h1 is known at 6, or it runs again from 6 on."""
    (folder / "hosts.yaml").write_text(HOSTS)
    names = ["--log", "log.jsonl", "--scheduler", "fair", "--json"]
    done = slotwise("simulate", "hosts.yaml", *options.split(), *names)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["jobs"]["j"]["completion"] == completion
    logged = read_log("log.jsonl").header.parameters
    found = {key: logged[key] for key in ("outages", "speeds", "repeats") if key in logged}
    assert found == parameters
    replayed = slotwise("replay", "log.jsonl")
    assert replayed.exit_code == 0
    assert "identical" in replayed.stdout


REFUSED = {
    "--outage h1": "--outage is 'h1'; expected a host, an instant and seconds, as in h1=60+30",
    "--outage =1+2": "--outage is '=1+2'; expected a host, an instant and seconds, as in",
    "--outage h1=1": "--outage is 'h1=1'; expected a host, an instant and seconds",
    "--outage h1=one+2": "--outage is 'h1=one+2'; expected a host, an instant and seconds",
    "--outage h1=1+0": "outage h1=1.0+0.0: it lasts 0.0 s; expected seconds > 0",
    "--outage h1=-1+5": "outage h1=-1.0+5.0: it begins at -1.0; expected seconds >= 0",
    "--outage h1=1+inf": "outage h1=1.0+inf: it lasts inf s; expected seconds > 0",
    "--outage h1=1+2 --outage h1=2+1": "outage h1=1+2 and outage h1=2+1 overlap; combine them",
    "--outage h2=1+2": "outage h2=1+2: there is no host 'h2'; known: h1, a=b",
    "--true-speed h1": "--true-speed is 'h1'; expected each host once with its speed, as in",
    "--true-speed h1=fast": "--true-speed is 'h1=fast'; expected each host once with its speed",
    "--true-speed h1=1 --true-speed h1=2": "--true-speed is 'h1=2'; expected each host once",
    "--true-speed h1=0": "true speed of host 'h1' is 0.0; give a number > 0, from",
    "--true-speed h1=nan": "true speed of host 'h1' is nan; give a number > 0",
    "--true-speed h1=5e-324": "is 5e-324; give a number > 0, from 1e-12 to 1e+12",
    "--true-speed h1=1e308": "is 1e+308; give a number > 0, from 1e-12 to 1e+12",
    "--true-speed h2=1": "true speed h2=1: there is no host 'h2'; known: h1, a=b",
}
"""Options that will not do, and what is said to them."""


@pytest.mark.parametrize("command", ["simulate", "compare"])
@pytest.mark.parametrize("options", REFUSED)
def test_bad_options_are_refused(
    command: str, options: str, slotwise: Any, folder: Path
) -> None:
    """With exit code 2 and one line, before a log is created."""
    (folder / "hosts.yaml").write_text(HOSTS)
    done = slotwise(command, "hosts.yaml", "--log", "log.jsonl", *options.split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert REFUSED[options] in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(folder.glob("log*"))
