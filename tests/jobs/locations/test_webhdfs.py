"""The blocks of HDFS, from a small server that answers as a name node does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from slotwise.core.cluster import Cluster, Host
from slotwise.core.errors import InputError
from slotwise.core.job import Block
from slotwise.jobs.formats.files import find_inputs, open_input
from slotwise.jobs.locations import FileBlock, hdfs_locator, own_name_node
from slotwise.jobs.mapreduce.planning import plan_mapreduce

PUBLIC = {
    "BlockLocations": {
        "BlockLocation": [
            {
                "cachedHosts": [],
                "corrupt": False,
                "hosts": ["dn1.example.com", "dn2.example.com"],
                "length": 100,
                "names": ["10.0.0.1:9866", "10.0.0.2:9866"],
                "offset": 0,
                "storageTypes": ["DISK", "DISK"],
                "topologyPaths": ["/r/10.0.0.1:9866", "/r/10.0.0.2:9866"],
            },
            {
                "cachedHosts": [],
                "corrupt": True,
                "hosts": [],
                "length": 20,
                "names": [],
                "offset": 100,
                "storageTypes": [],
                "topologyPaths": [],
            },
        ]
    }
}

INTERNAL = {
    "LocatedBlocks": {
        "fileLength": 120,
        "isLastBlockComplete": True,
        "isUnderConstruction": False,
        "locatedBlocks": [
            {
                "block": {"blockId": 7, "blockPoolId": "p", "numBytes": 120},
                "cachedLocations": [],
                "isCorrupt": False,
                "locations": [
                    {"hostName": "dn1", "ipAddr": "10.0.0.1", "name": "10.0.0.1:9866"}
                ],
                "startOffset": 0,
            }
        ],
    }
}

UNKNOWN = (
    'Invalid value for webhdfs parameter "op": No enum constant'
    " org.apache.hadoop.hdfs.web.resources.GetOpParam.Op.GETFILEBLOCKLOCATIONS"
)


class NameNode:
    """Answers with what a test puts in: an answer by operation, or an error by its message."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {"GETFILEBLOCKLOCATIONS": PUBLIC}
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = parse_qs(parts.query)
                node.asked.append((parts.path, query))
                answer = node.answers.get(query["op"][0], UNKNOWN)
                if isinstance(answer, bytes):
                    self.reply(200, answer)
                    return
                if isinstance(answer, str):
                    status = 400 if answer == UNKNOWN else 404
                    names = {"exception": "E", "javaClassName": "E", "message": answer}
                    answer = {"RemoteException": names}
                else:
                    status = 200
                self.reply(status, json.dumps(answer).encode())

            def reply(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"webhdfs://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def name_node() -> Iterator[NameNode]:
    """A name node on loopback."""
    node = NameNode()
    thread = threading.Thread(target=node.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield node
    finally:
        node.server.shutdown()
        thread.join()
        node.server.server_close()


def test_blocks_with_names_and_addresses_of_machines(name_node: NameNode) -> None:
    """Corrupt blocks have no hosts."""
    found = hdfs_locator(name_node.address)("hdfs://other/data/a b.txt")
    names = {"dn1.example.com", "dn2.example.com", "10.0.0.1", "10.0.0.2"}
    assert found == [FileBlock(0, 100, frozenset(names))]
    assert name_node.asked == [
        ("/webhdfs/v1/data/a%20b.txt", {"op": ["GETFILEBLOCKLOCATIONS"]})
    ]


def test_older_name_nodes_are_asked_in_another_way(name_node: NameNode) -> None:
    """The user of the address is told."""
    name_node.answers = {"GET_BLOCK_LOCATIONS": INTERNAL}
    url = name_node.address.replace("//", "//anna@") + "/a"
    assert hdfs_locator(own_name_node(url))(url) == [
        FileBlock(0, 120, frozenset({"dn1", "10.0.0.1"}))
    ]
    assert name_node.asked[-1][1] == {"op": ["GET_BLOCK_LOCATIONS"], "user.name": ["anna"]}


def test_what_a_name_node_refuses_is_told(name_node: NameNode) -> None:
    """With its own words."""
    name_node.answers["GETFILEBLOCKLOCATIONS"] = "File does not exist: /a"
    with pytest.raises(InputError, match=r"/a: File does not exist: /a; correct the address"):
        hdfs_locator(name_node.address)("/a")


def test_another_server_is_refused(name_node: NameNode) -> None:
    """One sentence, not a KeyError."""
    name_node.answers["GETFILEBLOCKLOCATIONS"] = {"hello": 1}
    with pytest.raises(InputError, match="does not answer as a name node"):
        hdfs_locator(name_node.address)("/a")


def test_an_address_without_server_is_refused(name_node: NameNode) -> None:
    """With the address."""
    with pytest.raises(InputError, match=r"name node http://127\.0\.0\.1:9: .*refused"):
        hdfs_locator("webhdfs://127.0.0.1:9")("/a")


@pytest.mark.parametrize("given", ["webhdfs://", "webhdfs://host:port", "hdfs://host"])
def test_what_is_no_address_is_refused(given: str) -> None:
    """Before anything is asked."""
    with pytest.raises(InputError, match="give the address of a name node"):
        hdfs_locator(given)


def test_a_file_is_read_from_hdfs_where_its_blocks_are(
    name_node: NameNode, tmp_path: Path
) -> None:
    """The whole way: found, cut, placed and read by one URL."""
    pytest.importorskip("requests", reason="fsspec reads webhdfs:// with requests")
    text = b"a rose is a\n" * 10
    about = {
        "type": "FILE",
        "length": len(text),
        "pathSuffix": "",
        "modificationTime": 1320171722771,
    }
    name_node.answers |= {"GETFILESTATUS": {"FileStatus": about}, "OPEN": text}
    url = f"{name_node.address}/in/a.txt"
    hosts = [Host(name, {"task": 1}, addresses=(name,)) for name in ("dn1", "dn2", "dn3")]
    execution = plan_mapreduce(
        "j",
        "wordcount",
        url,
        str(tmp_path / "out"),
        cluster=Cluster(tuple(hosts)),
        input_hosts="auto",
    )
    assert execution.job.by_name["map"].tasks.blocks == (Block(frozenset({"dn1", "dn2"}), 100),)
    (file,) = find_inputs([url])
    assert file.path == url
    with open_input(file.path) as opened:
        assert opened.read() == text
