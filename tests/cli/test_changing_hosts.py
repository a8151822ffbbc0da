"""Commands on workloads whose hosts are added, drained and removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from slotwise.core.log import read_log

FILE = """\
slotwise: 1
cluster:
  hosts: [{name: h1, slots: 1}]
  changes:
    - {at: 3.5, drain: h1}
    - {at: 6, add: {name: h2, slots: 2}}
jobs: [{id: j, phases: [{name: map, work: 8, tasks: 8}]}]
"""


def test_a_log_with_changes_is_read_and_replayed(slotwise: Any, folder: Path) -> None:
    """By the commands, as a user would do it."""
    (folder / "w.yaml").write_text(FILE)
    done = slotwise("simulate", "w.yaml", "--log", "log.jsonl", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["jobs"]["j"]["completion"] == 8.0
    assert "identical" in slotwise("replay", "log.jsonl").stdout
    assert slotwise("explain", "log.jsonl", "--job", "j", "--at", "3").exit_code == 0
    assert slotwise("report", "log.jsonl", "-o", "r.html").exit_code == 0
    names = slotwise("compare", "w.yaml", "--schedulers", "fifo,flex", "--json")
    assert names.exit_code == 0, names.stderr
    assert read_log("log.jsonl").header.cluster.kinds == frozenset()


IMPORT = ("trace", "import", "swim", "swim.tsv", "--hosts", "4", "--hosts-per-rack", "2")


def test_hosts_of_an_imported_trace_change_by_the_seed(folder: Path, slotwise: Any) -> None:
    """The same seed gives the same file, which is simulated and replayed."""
    lines = (f"j{number}\t{number}\t1\t{5 << 27}\t100\t9\n" for number in range(20))
    (folder / "swim.tsv").write_text("".join(lines))
    for name, seed in (("one", "7"), ("same", "7"), ("other", "8")):
        done = slotwise(*IMPORT, "-o", f"{name}.yaml", "--host-changes", "9", "--seed", seed)
        assert done.exit_code == 0, done.stderr
    one, same, other = ((folder / f"{n}.yaml").read_text() for n in ("one", "same", "other"))
    assert one == same != other
    assert one.count("    - {at: ") == 9
    assert slotwise("simulate", "one.yaml", "--log", "log.jsonl").exit_code == 0
    assert slotwise("replay", "log.jsonl").exit_code == 0
