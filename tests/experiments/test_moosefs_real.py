"""A real MooseFS: a master and three chunk servers, in namespaces of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from experiments.moosefs import address, lacks, run_on_moosefs

ASK = """
import json, os
from experiments.locators import mount, moosefs
from slotwise.core.cluster import Cluster, Host
from slotwise.jobs.mapreduce.planning import plan_mapreduce

with open("mnt/text.txt", "w") as file:
    file.write("word\\n" * (65 * 2**20 // 5 + 1))
    file.truncate(65 * 2**20)
    os.fsync(file.fileno())
hosts = [Host(f"w-{n}", {"task": 1}, addresses=(f"10.77.0.{n}",)) for n in (2, 3, 4)]
job = plan_mapreduce(
    "j", "wordcount", "mnt/text.txt", "out", cluster=Cluster(tuple(hosts)), input_hosts=mount
).job
homes = job.by_name["map"].tasks.blocks
print(json.dumps({
    "homes": [[sorted(block.hosts), block.size_bytes] for block in homes],
    "blocks": [[offset, sorted(hosts)] for offset, _, hosts in moosefs("mnt/text.txt")],
}))
"""


@pytest.mark.slow
@pytest.mark.skipif(bool(lacks()), reason=lacks())
def test_tasks_belong_where_moosefs_keeps_their_chunks(tmp_path: Path) -> None:
    """The mount is recognized; each chunk of a file of 65 MiB is on two of three servers."""
    path = {"PYTHONPATH": str(Path(__file__).parents[2])}
    answer = json.loads(run_on_moosefs([sys.executable, "-c", ASK], tmp_path, 3, 2, path))
    mib = 1 << 20
    assert [offset for offset, _ in answer["blocks"]] == [0, 64 * mib]
    assert all(len(hosts) == 2 for _, hosts in answer["blocks"])
    names = {address(server): f"w-{server + 2}" for server in range(3)}
    named = [[names[host] for host in hosts] for _, hosts in answer["blocks"]]
    assert answer["homes"] == [[named[0], 64 * mib], [named[1], mib]]
