"""Where blocks are looked for, how they become homes, and which hosts are on a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from slotwise.core.cluster import Cluster, Host
from slotwise.core.errors import InputError
from slotwise.core.job import Block
from slotwise.jobs.formats.files import find_inputs
from slotwise.jobs.formats.planned import checked
from slotwise.jobs.formats.splits import SplitPiece, bytes_on_hosts
from slotwise.jobs.locations import FileBlock
from slotwise.jobs.mapreduce.planning import plan_mapreduce
from slotwise.workload.file import read_workload

CLUSTER = Cluster(
    (
        Host("w-1", {"task": 1}, addresses=("10.0.0.1", "dn1.example.com")),
        Host("w-2", {"task": 1}, addresses=("10.0.0.1", "dn1.example.com")),
        Host("w-3", {"task": 1}, addresses=("10.0.0.3", "dn3")),
    )
)


@pytest.mark.parametrize(
    ("machine", "hosts"),
    [
        ("w-2", ["w-2"]),
        ("10.0.0.1", ["w-1", "w-2"]),
        ("DN1", ["w-1", "w-2"]),
        ("dn3.example.com", ["w-3"]),
        ("10.0.0.9", []),
        ("10.0.0", []),
    ],
)
def test_the_hosts_on_a_machine(machine: str, hosts: list[str]) -> None:
    """By the name of the host, or an address or a name of its machine."""
    assert list(CLUSTER.at(machine)) == hosts


def planned(folder: Path, stated: Any, cluster: Cluster = CLUSTER) -> list[Block]:
    """The homes of the maps of 10 bytes each of a file with 30 bytes."""
    (folder / "a.txt").write_text("a b c d e\n" * 3)
    job = plan_mapreduce(
        "j",
        "wordcount",
        "a.txt",
        "out",
        split_bytes=10,
        base_dir=folder,
        cluster=cluster,
        input_hosts=stated,
    ).job
    return list(job.by_name["map"].tasks.blocks)


def test_a_function_gives_the_blocks_of_a_file(tmp_path: Path) -> None:
    """Each map belongs where most of its bytes are, on all workers of the machine."""
    asked = []

    def locate(path: str) -> list[tuple[int, int, list[str]]]:
        asked.append(path)
        return [(0, 10, ["dn1", "10.0.0.1"]), (10, 4, ["dn3"]), (14, 16, ["dn1"])]

    both = frozenset({"w-1", "w-2"})
    assert planned(tmp_path, locate) == [Block(both, 10), Block(both, 6), Block(both, 10)]
    assert asked == [str(tmp_path / "a.txt")]


def test_machines_without_a_host_are_no_homes(tmp_path: Path) -> None:
    """A host of the cluster comes first, even if it has fewer bytes."""
    blocks = planned(tmp_path, lambda path: [(0, 30, ["elsewhere"]), (10, 3, ["dn3"])])
    assert blocks[1] == Block(frozenset({"w-3"}), 3)
    assert planned(tmp_path, lambda path: [(0, 30, ["elsewhere"])]) == []


def test_a_table_may_name_workers_of_one_machine(tmp_path: Path) -> None:
    """Their names tell them apart."""
    assert planned(tmp_path, {"a.txt": ["w-2"]}) == [Block(frozenset({"w-2"}), 10)] * 3


def test_a_piece_of_row_groups_counts_by_its_bytes() -> None:
    """Half of the bytes in the file are half of its size."""
    piece = SplitPiece("a", 0, 4, 1000, within=(100, 300))
    held = {"a": [FileBlock(0, 200, frozenset("x")), FileBlock(200, 200, frozenset("y"))]}
    assert bytes_on_hosts([piece], held) == {"x": 500, "y": 500}


def test_row_groups_are_where_the_file_has_them(tmp_path: Path) -> None:
    """The pieces of a Parquet file follow each other to its end."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    from slotwise.jobs.formats.parquet import ParquetInput

    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": range(3000)}), path, row_group_size=1000)
    (file,) = find_inputs([str(path)])
    extents = [piece.extent for piece in ParquetInput().pieces(file, 1)]
    assert len(extents) == 3
    assert extents[0][0] == 4
    assert [end for _, end in extents[:-1]] == [start for start, _ in extents[1:]]
    assert extents[-1][1] == path.stat().st_size


def test_auto_knows_nothing_of_local_files(tmp_path: Path) -> None:
    """It asks the name nodes in URLs."""
    assert planned(tmp_path, "auto") == []


LOCATORS = """\
def locate(path):
    return [(0, 30, ["dn3"])] if path.endswith("a.txt") else []

broken = 3
"""


def test_a_file_has_a_function_of_the_user(tmp_path: Path) -> None:
    """By its place, relative to the workload file, as a program."""
    (tmp_path / "own.py").write_text(LOCATORS)
    assert planned(tmp_path, "own.py:locate") == [Block(frozenset({"w-3"}), 10)] * 3
    for stated, says in {
        "own.py:broken": "the file defines no function 'broken'",
        "own.py:lost": "the file defines no function 'lost'",
        "other.py:locate": "file .*other.py not found",
    }.items():
        with pytest.raises(InputError, match=f"input_hosts '{stated}': {says}"):
            planned(tmp_path, stated)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("a", "input_hosts is 'a'; give lists of names of hosts by path"),
        ("moosefs", r"input_hosts is 'moosefs', .* give path/to/locators\.py:moosefs"),
        ("webhdfs://:1", "give the address of a name node"),
        (3, "input_hosts is 3; give lists"),
    ],
)
def test_wrong_sources_are_refused(given: Any, says: str) -> None:
    """Before any file is looked for."""
    with pytest.raises(InputError, match=says):
        checked(given)


def test_a_function_that_returns_something_else_is_refused(tmp_path: Path) -> None:
    """The message shows what it returned."""
    with pytest.raises(InputError, match=r"the function returned \[\(0, 10, 'dn1'\)\] for"):
        planned(tmp_path, lambda path: [(0, 10, "dn1")])


FILE = """\
slotwise: 1
jobs:
  - {id: words, program: wordcount, inputs: a.txt, output: out, input_hosts: HOSTS}
"""


def test_a_workload_file_names_a_source(tmp_path: Path) -> None:
    """Or workers by name, if it states no hosts itself; another text is refused.

    Files that were written for MooseFS are read; a plan of the job is refused, as above.
    """
    path = tmp_path / "jobs.yaml"
    for given in (
        *("auto", "webhdfs://namenode:9870", "own.py:locate", "{a.txt: [w-1]}"),
        "moosefs",
    ):
        path.write_text(FILE.replace("HOSTS", given))
        assert read_workload(path).jobs[0].id == "words"
    path.write_text(FILE.replace("HOSTS", "hdfs"))
    with pytest.raises(InputError, match=r"input_hosts \(line 3\) is 'hdfs': .*expected auto"):
        read_workload(path)


class Served(MemoryFileSystem):
    """A file system whose names are without the server, as that of webhdfs."""

    protocol = "served"
    store: ClassVar[dict[str, Any]] = {}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        inner = path.split("://")[-1].partition("/")[2] if "://" in path else path
        return "/" + inner.strip("/")


def test_files_of_a_server_keep_it_in_their_urls() -> None:
    """Tasks open them by these."""
    fsspec.register_implementation("served", Served, clobber=True)
    with fsspec.open("served://host:1/in/a.txt", "w") as file:
        file.write("a")
    (found,) = find_inputs(["served://host:1/in/*.txt"])
    assert found.path == "served://host:1/in/a.txt"
