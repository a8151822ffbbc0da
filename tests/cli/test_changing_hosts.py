"""Commands on workloads whose hosts come and go."""

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
