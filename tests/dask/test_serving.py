"""What a scheduler shows of its gate: to clients, as JSON, and in Dask's dashboard."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPCookieProcessor, build_opener, urlopen

import pytest
from distributed import Client

import slotwise.dask as gate
from gated_cluster import Cluster
from slotwise.core.errors import InputError
from waiting import until


def fetch(cluster: Cluster, path: str) -> str:
    """A page of the dashboard."""
    port = cluster.local.scheduler.http_server.port
    with urlopen(f"http://127.0.0.1:{port}/{path}", timeout=20) as answer:
        return str(answer.read().decode())


def test_clients_and_browsers_see_what_runs(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """One of three tasks of a pool runs, because that is its max share."""
    cluster = make_cluster()
    cluster.install("fair", pools=[{"name": "team", "slots_max": 1, "slots_min": 1}])
    client = cluster.client("team")
    end = tmp_path / "end"

    def wait(number: int) -> None:
        while not end.exists():
            time.sleep(0.01)

    futures = client.map(wait, range(3), pure=False)
    until(lambda: gate.status(client).used == 1)
    status = gate.status(client)
    (computation,) = status.computations
    assert (computation.pool, computation.running, computation.tasks) == ("team", 1, 3)
    assert computation.reason == "pool team holds its max share of 1"
    assert status.held == 2
    assert (status.pools["team"].guaranteed, status.pools["team"].used) == (1, 1)
    found = json.loads(fetch(cluster, "slotwise.json"))
    assert found["computations"][0]["name"] == computation.name
    assert found["pools"] == {"team": {"guaranteed": 1, "entitled": 1, "used": 1}}
    assert "wait" not in json.dumps(found), "no names of functions or keys"
    end.touch()
    client.gather(futures)
    until(lambda: gate.status(client).completed == 1)
    status = gate.status(client)
    assert 0 < status.lower_bound <= status.value
    assert not cluster.gate.history._alive
    del futures
    cluster.check_empty()


def test_the_dashboard_has_a_page(cluster: Cluster) -> None:
    """It is in the menu of all pages, once, also after another gate was installed."""
    pytest.importorskip("bokeh")
    cluster.install("flex")
    for path in ("slotwise", "individual-slotwise"):
        assert "bokeh" in fetch(cluster, path)
    menu = fetch(cluster, "status")
    assert menu.count('href="slotwise"') == 1
    assert menu.count('href="individual-slotwise"') == 1


def test_the_page_draws_what_the_gate_says(cluster: Cluster, tmp_path: Path) -> None:
    """Its document has a picture for each pool, and a row for each computation and worker.

    No column is narrower than its text, whatever the width of the page.
    """
    pytest.importorskip("bokeh")
    from bokeh.document import Document
    from bokeh.models import DataTable, Div
    from bokeh.plotting import figure

    from slotwise.dask.dashboard import slotwise_doc

    pool = "reports-of-the-board"
    pools = [{"name": "<b>", "slots_min": 1}, {"name": pool}]
    cluster.install("fair", pools=pools, memory=True)
    client = cluster.client(pool)
    end = tmp_path / "end"

    def wait(number: int) -> None:
        while number >= 20 and not end.exists():
            time.sleep(0.01)

    futures = client.map(wait, range(200), pure=False)
    until(lambda: len(gate.status(client).samples) > 1 and gate.status(client).slots == 4)
    document = Document()
    slotwise_doc(cluster.local.scheduler, {}, document)
    pictures = document.select({"type": figure})
    assert {one.title.text for one in pictures} == {"<b>", pool}
    (table,) = document.select({"type": DataTable})
    assert list(table.source.data["pool"]) == [pool]
    assert table.autosize_mode == "none"
    widths = {one.field: one.width for one in table.columns}
    assert widths["pool"] >= 7 * len(pool) > widths["state"]
    text = "".join(one.text for one in document.select({"type": Div}))
    assert "scheduler fair" in text
    assert re.search(r"\d of 4 slots used, \d+ tasks held", text)
    assert "value 0 s; lower bound 0 s" in text
    assert len(re.findall("<tr>", text)) == 1 + 2
    assert "estimated for tasks" in text
    client.cancel(futures)
    end.touch()


def test_a_scheduler_without_a_gate_says_so(
    make_cluster: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    """Before it is installed, and after it was removed; its log has no traceback."""
    cluster = make_cluster(workers=0)
    client = cluster.client()
    logger = logging.getLogger("distributed.core")
    logger.addHandler(caplog.handler)
    with pytest.raises(InputError, match=r"no gate; call slotwise\.dask\.install"):
        gate.status(client)
    cluster.install("fair")
    assert not gate.status(client).is_open
    client.unregister_scheduler_plugin("slotwise")
    with pytest.raises(InputError, match=r"no gate; call slotwise\.dask\.install"):
        gate.status(client)
    with pytest.raises(HTTPError, match="no gate"):
        fetch(cluster, "slotwise.json")
    logger.removeHandler(caplog.handler)
    assert "slotwise_status" not in caplog.text


def test_asking_without_a_gate_leaves_no_traceback(
    make_cluster: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    """The scheduler is not asked for what it does not serve."""
    client = make_cluster(workers=0).client()
    with pytest.raises(InputError, match="this scheduler has no gate"):
        gate.status(client)
    assert "No handler" not in caplog.text
    assert not [record for record in caplog.records if record.exc_info]


def test_the_status_is_served_after_a_restart(make_cluster: Callable[..., Cluster]) -> None:
    """A restart clears the metadata of the scheduler, and calls the plugins."""
    cluster = make_cluster(workers=0)
    cluster.install("fair")
    cluster.local.scheduler.task_metadata.clear()
    cluster.gate.restart(cluster.local.scheduler)
    assert gate.status(cluster.client()).scheduler == "fair"


def test_notebooks_show_the_status_as_tables(make_cluster: Callable[..., Cluster]) -> None:
    """With the numbers of its text; names of pools stay text."""
    cluster = make_cluster(workers=0)
    cluster.install("fair", pools=[{"name": "<b>", "slots_min": 2}])
    html = gate.status(cluster.client())._repr_html_()
    assert "gate: at work; scheduler fair" in html
    assert "&lt;b&gt;</td>" in html
    assert ">guaranteed</th>" in html


def test_asynchronous_clients_await_the_status(make_cluster: Callable[..., Cluster]) -> None:
    """As all that such a client does."""
    cluster = make_cluster(workers=0, protocol="tcp://")
    cluster.install("fair")
    address = cluster.local.scheduler_address

    async def ask() -> str:
        async with Client(address, asynchronous=True, set_as_default=False) as client:
            return str((await gate.status(client)).scheduler)

    assert asyncio.run(ask()) == "fair"


WITHOUT_BOKEH = """
import sys, urllib.request
sys.modules["bokeh"] = None
from distributed import Client, LocalCluster
import slotwise.dask
options = {"n_workers": 0, "processes": False, "dashboard_address": "127.0.0.1:0"}
with LocalCluster(**options) as cluster, Client(cluster) as client:
    slotwise.dask.install(client, scheduler="fair")
    port = cluster.scheduler.http_server.port
    print(urllib.request.urlopen(f"http://127.0.0.1:{port}/slotwise.json").status)
    print(slotwise.dask.status(client).scheduler)
"""


@pytest.mark.slow
def test_without_bokeh_there_is_no_page_and_no_error(tmp_path: Path) -> None:
    """The JSON and the status for clients are there."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_BOKEH],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["200", "fair"], done.stderr
    assert "slotwise" not in done.stderr


def test_an_objective_of_deadlines_takes_computations_without_one(
    make_cluster: Callable[..., Cluster],
) -> None:
    """They are due when they arrive, so that their tardiness is their response time."""
    cluster = make_cluster()
    cluster.install("flex", objective="tardiness")
    client = cluster.client()
    futures = client.map(lambda n: n, range(10), pure=False)
    assert client.gather(futures) == list(range(10))
    until(lambda: gate.status(client).completed == 1)
    assert gate.status(client).value > 0
    del futures
    cluster.check_empty()


def test_the_live_page_is_served_beside_the_scheduler_when_it_is_asked_for(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """Its link logs one browser in; it shows slots, pools and reasons, and ends with Dask."""
    pytest.importorskip("uvicorn")
    cluster = make_cluster()
    cluster.install("fair", pools=[{"name": "team", "slots_max": 1}])
    client, end = cluster.client("team"), tmp_path / "end"

    def wait(number: int) -> None:
        while not end.exists():
            time.sleep(0.01)

    futures = client.map(wait, range(3), pure=False)
    until(lambda: gate.status(client).used == 1)
    link = gate.page(client)
    base = link.partition("/login")[0]
    browser = build_opener(HTTPCookieProcessor())
    with pytest.raises(HTTPError):
        urlopen(f"{base}/v1/jobs", timeout=20)
    browser.open(link, timeout=20).read()
    (job,) = json.load(browser.open(f"{base}/v1/jobs", timeout=20))["jobs"]
    assert (job["pool"], job["state"], job["slots"], job["tasks"]) == ("team", "running", 1, 3)
    explained = json.load(
        browser.open(f"{base}/v1/jobs/{quote(job['id'])}/explain", timeout=20)
    )
    assert "max share of 1" in explained["text"]
    until(lambda: json.load(browser.open(f"{base}/v1/jobs", timeout=20))["jobs"][0]["eta"])
    (computation,) = gate.status(client).computations
    assert computation.starts is None
    assert computation.ends is not None
    with browser.open(f"{base}/v1/stream", timeout=20) as stream:
        data = next(line for line in stream if line.startswith(b"data: "))
    sections = json.loads(data[6:])["common"]["set"]
    assert sections["pools"]["team"]["used"] == 1
    assert [one[0] for one in sections["slots"].values()] == [job["id"]]
    assert gate.page(client).partition("/login")[0] == base
    end.touch()
    client.gather(futures)
    cluster.close()

    def is_over() -> bool:
        try:
            urlopen(base, timeout=20)
        except OSError as error:
            return "refused" in str(error)
        return False

    until(is_over)
    until(lambda: "slotwise forecasts" not in {one.name for one in threading.enumerate()})


def test_a_gate_loads_no_web_server_unless_it_is_asked_for() -> None:
    """Schedulers without a page have no such module."""
    names = "starlette", "uvicorn"
    code = f"import sys, slotwise.dask; print([n for n in {names} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
