"""Output in an object store that speaks the protocol of S3: moto's server on loopback.

The tests need two packages that the others do not: `pip install s3fs 'moto[server]'`.
"""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

import slotwise

pytestmark = pytest.mark.slow

LINES = 2000
COUNTS = {b"a\t16000", b"is\t8000", b"rose\t16000"}
KILLS = 25

JOB = """
import slotwise

if __name__ == "__main__":
    job = slotwise.mapreduce(
        "wordcount", "s3://bucket/in/*", "s3://bucket/out", id="j", reducers=9, overwrite=True
    )
    print("begins", flush=True)
    result = slotwise.run(job, "fair", slots=2)
    assert not result.failed, result.failed
"""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A file system of a store with four texts."""
    s3fs = pytest.importorskip("s3fs", reason="pip install s3fs 'moto[server]'")
    server = pytest.importorskip("moto.server", reason="pip install s3fs 'moto[server]'")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    serving = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    serving.start()
    host, port = serving.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
    s3fs.S3FileSystem.clear_instance_cache()
    fs = s3fs.S3FileSystem()
    fs.mkdir("bucket")
    for number in range(4):
        fs.pipe(f"bucket/in/{number}.txt", b"a rose is a rose\n" * LINES)
    yield fs
    fs.rm("bucket", recursive=True)  # moto keeps what it has beyond the server's end.
    s3fs.S3FileSystem.clear_instance_cache()
    serving.stop()


def complete(store: Any) -> bool:
    """Whether there is a _SUCCESS; then all parts that it lists must be there, and right."""
    store.invalidate_cache()
    files = {path.rpartition("/")[2]: path for path in store.find("bucket/out")}
    if "_SUCCESS" not in files:
        return False
    parts = json.loads(store.cat(files["_SUCCESS"]))["parts"]
    assert len(parts) == 9
    assert set(parts) <= set(files)
    lines = b"".join(store.cat(files[name]) for name in parts).splitlines()
    assert set(lines) == COUNTS
    return True


def job(**options: Any) -> Any:
    """Word count from the store into the store."""
    return slotwise.mapreduce(
        "wordcount", "s3://bucket/in/*", "s3://bucket/out", id="j", reducers=9, **options
    )


def test_a_run_writes_its_output_into_a_store(store: Any) -> None:
    """It is written once; another run must be allowed to overwrite it."""
    assert not slotwise.run(job(), "fair", slots=2).failed
    assert complete(store)
    assert len(store.find("bucket/out")) == 10
    with pytest.raises(slotwise.InputError, match="exists; name another directory"):
        slotwise.run(job(), "fair", slots=2)
    assert not slotwise.run(job(overwrite=True), "fair", slots=2).failed
    assert complete(store)


def test_a_missing_bucket_is_not_made(store: Any) -> None:
    """The name of a bucket may be wrong; the output is refused before the run."""
    wrong = slotwise.mapreduce("wordcount", "s3://bucket/in/*", "s3://buckte/out", reducers=9)
    with pytest.raises(slotwise.InputError, match="bucket 'buckte' not found; create it"):
        slotwise.run(wrong, "fair", slots=2)
    assert store.ls("") == ["bucket"]


def test_hosts_write_their_output_into_a_store(store: Any) -> None:
    """Map output stays on the hosts; only parts of the output go to the store."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert not slotwise.run(job(), "fair", dask=client).failed
    assert complete(store)
    assert len(store.find("bucket/out")) == 10


def test_a_killed_manager_leaves_no_partial_output(store: Any) -> None:
    """There is a _SUCCESS only beside all parts, and the next run is right."""
    rng = random.Random(1)
    length = lasts(None)
    assert complete(store)
    found = [lasts(length * rng.uniform(0.3, 1.0)) and complete(store) for _ in range(KILLS)]
    assert not all(found)
    lasts(None)
    assert complete(store)
    assert len(store.find("bucket/out")) == 10


def lasts(seconds: float | None) -> float:
    """Run a job in a process, which is killed after some seconds; how long it ran."""
    with subprocess.Popen([sys.executable, "-c", JOB], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begins\n"
        begun = time.monotonic()
        try:
            assert process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            process.kill()
        return time.monotonic() - begun
