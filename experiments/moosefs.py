"""A MooseFS on this machine, in namespaces of its own: a master and some chunk servers.

Each server has an address of its own, `address(0)`, `address(1)` and so on, on a loopback that
only the processes in these namespaces have. Nothing of it is left when the command ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

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

MOUNT = "mnt"
"""Where the file system is, in the folder of the command."""

NAMESPACES = ("unshare", "-n", "-m", "-p", "--fork", "--kill-child", "--mount-proc")

SCRIPT = r"""
set -e
exec 3>&1 >&2
ip link set lo up
ip addr add 10.77.0.1/32 dev lo
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
for address in $ADDRESSES; do
    ip addr add $address/32 dev lo
    mkdir chunks-$address disk-$address
    echo $PWD/disk-$address > disks-$address
    cat > chunks-$address.cfg <<END
WORKING_USER = root
WORKING_GROUP = root
DATA_PATH = $PWD/chunks-$address
HDD_CONF_FILENAME = $PWD/disks-$address
HDD_LEAVE_SPACE_DEFAULT = 1MiB
MASTER_HOST = 10.77.0.1
BIND_HOST = $address
CSSERV_LISTEN_HOST = $address
END
    mfschunkserver -c chunks-$address.cfg start
done
mfsmount -H 10.77.0.1 $PWD/mnt
mfssetgoal $COPIES $PWD/mnt
"$@" >&3
"""


def lacks() -> str:
    """Why MooseFS cannot run here; empty if it can."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"needs {', '.join(missing)} (moosefs-master, -chunkserver, -client)"
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        return "needs root and /dev/fuse"
    if subprocess.run(["unshare", "-n", "-m", "true"], check=False).returncode:
        return "needs network namespaces"
    return ""


def address(server: int) -> str:
    """The address of a chunk server."""
    return f"10.77.0.{server + 2}"


def run_on_moosefs(
    command: Sequence[str],
    folder: Path,
    servers: int,
    copies: int,
    environment: Mapping[str, str] | None = None,
    seconds: float = 600.0,
) -> str:
    """Run a command in an empty folder with a MooseFS in `MOUNT`; what it prints.

    Files there have so many copies. RuntimeError with what was printed if anything fails,
    subprocess.TimeoutExpired after so many `seconds`.
    """
    prefix = Path(str(shutil.which("mfsmaster"))).parents[2]
    empty = prefix / EMPTY if (prefix / EMPTY).exists() else Path("/") / EMPTY
    given = {
        "EMPTY": str(empty),
        "ADDRESSES": " ".join(map(address, range(servers))),
        "COPIES": str(copies),
    }
    done = subprocess.run(
        [*NAMESPACES, "bash", "-c", SCRIPT, "moosefs", *command],
        cwd=folder,
        env={**os.environ, **given, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"on MooseFS: {done.stdout}{done.stderr}")
    return done.stdout
