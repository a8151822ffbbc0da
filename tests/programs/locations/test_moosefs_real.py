"""A real MooseFS: a master and three chunk servers, in namespaces of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = (
    "mfsmaster",
    "mfschunkserver",
    "mfsmount",
    "mfsfileinfo",
    "mfssetgoal",
    "unshare",
    "ip",
)
EMPTY = "var/lib/mfs/metadata.mfs.empty"


def lacks() -> str:
    """Why MooseFS cannot run here; empty if it can."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"needs {', '.join(missing)} (moosefs-master, -chunkserver, -client)"
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        return "needs root and /dev/fuse"
    if subprocess.run(["unshare", "-n", "-m", "true"], check=False).returncode:
        return "needs network namespaces"
    return ""


SCRIPT = r"""
set -e
ip link set lo up
for number in 1 2 3 4; do ip addr add 10.77.0.$number/32 dev lo; done
mkdir master mnt
cp "$EMPTY" master/metadata.mfs
echo "* / rw,alldirs,admin,maproot=0:0" > exports
echo > topology
cat > master.cfg <<END
WORKING_USER = root
WORKING_GROUP = root
DATA_PATH = $PWD/master
EXPORTS_FILENAME = $PWD/exports
TOPOLOGY_FILENAME = $PWD/topology
MATOML_LISTEN_HOST = 10.77.0.1
MATOCS_LISTEN_HOST = 10.77.0.1
MATOCL_LISTEN_HOST = 10.77.0.1
END
mfsmaster -c master.cfg start
for number in 2 3 4; do
    mkdir chunks-$number disk-$number
    echo $PWD/disk-$number > disks-$number
    cat > chunks-$number.cfg <<END
WORKING_USER = root
WORKING_GROUP = root
DATA_PATH = $PWD/chunks-$number
HDD_CONF_FILENAME = $PWD/disks-$number
HDD_LEAVE_SPACE_DEFAULT = 1MiB
MASTER_HOST = 10.77.0.1
BIND_HOST = 10.77.0.$number
CSSERV_LISTEN_HOST = 10.77.0.$number
END
    mfschunkserver -c chunks-$number.cfg start
done
mfsmount -H 10.77.0.1 $PWD/mnt
mfssetgoal 2 $PWD/mnt
yes word | head -c 68157440 > mnt/text.txt
sync mnt/text.txt
"$PYTHON" ask.py > answer.json
"""

ASK = """
import json
from slotwise.model.cluster import Cluster, Host
from slotwise.programs.locations.locators import located, locator
from slotwise.programs.mapreduce.planning import plan_mapreduce

hosts = [Host(f"w-{n}", {"task": 1}, addresses=(f"10.77.0.{n}",)) for n in (2, 3, 4)]
job = plan_mapreduce(
    "j", "wordcount", "mnt/text.txt", "out", cluster=Cluster(tuple(hosts)), input_hosts="auto"
).job
blocks = located("mnt/text.txt", locator("moosefs"))
homes = job.by_name["map"].tasks.blocks
print(json.dumps({
    "homes": [[sorted(block.hosts), block.size_bytes] for block in homes],
    "blocks": [[block.offset, sorted(block.hosts)] for block in blocks],
}))
"""


@pytest.mark.slow
@pytest.mark.skipif(bool(lacks()), reason=lacks())
def test_tasks_belong_where_moosefs_keeps_their_chunks(tmp_path: Path) -> None:
    """The mount is recognized; each chunk of a file of 65 MiB is on two of three servers."""
    (tmp_path / "ask.py").write_text(ASK)
    (tmp_path / "run.sh").write_text(SCRIPT)
    prefix = Path(str(shutil.which("mfsmaster"))).parents[2]
    empty = prefix / EMPTY if (prefix / EMPTY).exists() else Path("/") / EMPTY
    done = subprocess.run(
        [
            "unshare",
            "-n",
            "-m",
            "-p",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "bash",
            "run.sh",
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHON": sys.executable, "EMPTY": str(empty)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads((tmp_path / "answer.json").read_text())
    mib = 1 << 20
    assert [offset for offset, _ in answer["blocks"]] == [0, 64 * mib]
    assert all(len(hosts) == 2 for _, hosts in answer["blocks"])
    named = [
        [host.replace("10.77.0.", "w-") for host in hosts] for _, hosts in answer["blocks"]
    ]
    assert answer["homes"] == [[named[0], 64 * mib], [named[1], mib]]
