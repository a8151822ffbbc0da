"""`slotwise show`: graphs as text, JSON and pictures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

APP = """
import slotwise

def begin():
    yield 1

def one(numbers):
    return numbers

def key(number):
    return number

flow = slotwise.Dataflow()
a = flow.node(one, flow.values([1, 2, 3], copies=3), name="a")
b = flow.node(one, a.shm(), name="b")
c = flow.node(one, b.tcp(by=key), name="c", copies=2)
d = flow.node(one, c.file(by=key, sort=True), name="d")
flow.write(d, c)
"""

Show = Callable[..., Any]


@pytest.fixture
def app(folder: Path) -> Path:
    """app.py, and dataflows.yaml with two jobs of it."""
    (folder / "app.py").write_text(APP)
    (folder / "dataflows.yaml").write_text(
        "slotwise: 1\njobs:\n"
        "  - {id: one, output: x, dataflow: {app: app.py:flow}}\n"
        "  - {id: two, output: y, dataflow: {app: app.py}}\n"
    )
    return folder


def test_show_prints_groups_bundles_and_channels(slotwise: Show, app: Path) -> None:
    """Equal groups are drawn once, with their number."""
    done = slotwise("show", "app.py:flow")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "dataflow app.py:flow",
        "input   values        values, 3 parts",
        "",
        "stage a+b+c: a bundle of 5 groups, which start together in 10 slots",
        "  ┌─ 3 groups of 2 slots",
        "  │  a             reads values: direct, copy i from copy i",
        "  │  b             reads a: shm, copy i from copy i",
        "  └─",
        "  ┌─ 2 groups of 1 slot",
        "  │  c             reads b: tcp, by key, spills to disk",
        "  └─",
        "",
        "stage d: one group in 1 slot",
        "  waits for the files of a+b+c",
        "  ┌─ 1 group of 1 slot",
        "  │  d             reads c: file, by key, sorted",
        "  └─",
        "",
        "output  d             text, 1 part in d/",
        "output  c             text, 2 parts in c/",
    ]


def test_show_draws_jobs_that_wait_for_others(slotwise: Show, folder: Path) -> None:
    """As text, as JSON and as a picture with a box for each job."""
    (folder / "chain.yaml").write_text(
        "slotwise: 1\njobs:\n"
        "  - {id: end, command: date, after: [left, right], after_failed: run}\n"
        "  - {id: left, command: date, tasks: 2, after: [top]}\n"
        "  - {id: right, command: date, tasks: 2, after_each: [left]}\n"
        "  - {id: top, program: wordcount, inputs: x, output: y}\n"
    )
    assert slotwise("show", "chain.yaml").stdout.splitlines() == [
        "top        program wordcount",
        "  left     2 tasks            after top",
        "    right  2 tasks            after each task of left",
        "      end  1 task             after left, after right, also if one fails",
    ]
    shown = json.loads(slotwise("show", "chain.yaml", "--json").stdout)["jobs"]
    assert [(one["id"], one["level"], one["after"]) for one in shown] == [
        ("top", 0, []), ("left", 1, ["top"]), ("right", 2, []), ("end", 3, ["left", "right"]),
    ]  # fmt: skip
    assert slotwise("show", "chain.yaml", "--job", "left").stdout.splitlines()[:2] == [
        "top        program wordcount",
        "  left     2 tasks            after top",
    ]
    assert slotwise("show", "chain.yaml", "--job", "top").stdout.count("\n") == 4
    slotwise("show", "chain.yaml", "--svg", "chain.svg")
    texts = [one.text for one in ElementTree.parse(folder / "chain.svg").iter() if one.text]
    assert {"top", "left", "right", "end"} <= set(texts)


def test_show_draws_phases_that_are_commands(slotwise: Show, folder: Path) -> None:
    """Below their job, each after those that it waits for."""
    (folder / "nightly.yaml").write_text(
        "slotwise: 1\njobs:\n"
        "  - id: nightly\n"
        "    phases:\n"
        "      - {name: mail, command: date, after: [count]}\n"
        "      - {name: count, program: wordcount, inputs: x, output: y}\n"
    )
    assert slotwise("show", "nightly.yaml").stdout.splitlines() == [
        "nightly   2 phases",
        "  count   program wordcount",
        "    mail  1 task             after count",
    ]
    (shown,) = json.loads(slotwise("show", "nightly.yaml", "--json").stdout)["jobs"]
    assert [(one["id"], one["after"]) for one in shown["phases"]] == [
        ("count", []),
        ("mail", ["count"]),
    ]


def test_show_prints_json(slotwise: Show, app: Path) -> None:
    """An object for each dataflow of a workload file."""
    done = slotwise("show", "dataflows.yaml", "--json")
    plain = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one.pop("job") for one in plain] == ["one", "two"]
    assert plain[0]["stages"] == plain[1]["stages"]
    functions = [node["function"] for node in plain[0]["nodes"]]
    assert functions == [None, *["app.py:one"] * 4]
    assert list(plain[0]) == ["nodes", "channels", "stages", "written"]
    assert plain[0]["stages"][1] == {
        "name": "d",
        "gang": False,
        "slots": 1,
        "after": ["a+b+c"],
        "work": [pytest.approx(0, abs=1e-3)],
        "groups": [[["d", 0]]],
    }
    assert plain[0]["channels"][2] == {
        "writer": "b",
        "output": "out",
        "reader": "c",
        "input": 0,
        "kind": "tcp",
        "route": "hash",
        "by": "key",
        "sort": False,
        "spills": True,
    }


def test_show_draws_a_picture(slotwise: Show, app: Path) -> None:
    """Boxes, frames and lines; only the dataflow that is asked for; files are replaced."""
    for _ in range(2):
        done = slotwise("show", "dataflows.yaml", "--job", "two", "--svg", "flow.svg")
        assert (done.exit_code, done.stdout) == (0, "flow.svg\n")
    root = ElementTree.fromstring((app / "flow.svg").read_text())
    names = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    for name in ("values", "a", "b", "c", "d", "by key, spills", "by key, sorted"):
        assert name in names
    dashed = [one for one in root if one.tag.endswith("rect") and one.get("stroke-dasharray")]
    assert len(dashed) == 5  # The bundle, also in the legend, and three boxes of files.
    assert slotwise("show", "dataflows.yaml", "--html", "flows.html").exit_code == 0
    page = (app / "flows.html").read_text()
    assert page.count("<svg") == 2
    assert "<h2>one</h2>" in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.py:flow",), "missing.py not found"),
        (("app.py:key",), "cannot be called"),
        (("jobs.yaml",), "jobs.yaml: no job has a dataflow; add one, or name app.py:flow"),
        (
            ("dataflows.yaml", "--job", "x"),
            "--job 'x': no such job; known: one, two",
        ),
        (("app.py:flow", "--job", "x"), "--job is for workload files"),
        (
            ("dataflows.yaml", "--svg", "x.svg"),
            "--svg holds one picture, and dataflows.yaml has 2",
        ),
        (
            ("app.py", "--svg", "app.py"),
            "picture 'app.py' exists and was not written by slotwise",
        ),
        (("app.py", "--html", "no/x.html"), "picture 'no/x.html': No such file or directory"),
    ],
)
def test_show_refuses(
    slotwise: Show, app: Path, arguments: tuple[str, ...], message: str
) -> None:
    """One message, and exit code 2."""
    done = slotwise("show", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr.replace("\n", " ")


def test_tasks_that_cannot_wait_one_for_one_are_refused(slotwise: Show, folder: Path) -> None:
    """Before anything is drawn, with their place."""
    jobs = "[{id: a, command: x, tasks: 3}, {id: b, command: x, tasks: 2, after_each: [a]}]"
    (folder / "each.yaml").write_text(f"slotwise: 1\njobs: {jobs}\n")
    done = slotwise("show", "each.yaml")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("slotwise: each.yaml: jobs[1] (line 2): job 'b' has 2 tasks,")


def test_a_bundle_that_the_cluster_cannot_hold_is_refused(slotwise: Show, app: Path) -> None:
    """The cluster of the workload file is known."""
    text = (app / "dataflows.yaml").read_text()
    (app / "dataflows.yaml").write_text(f"{text}cluster: {{slots: 9}}\n")
    done = slotwise("show", "dataflows.yaml")
    assert done.exit_code == 2
    assert "job 'one': the bundle of a, b, c starts together" in done.stderr.replace("\n", " ")


def test_a_long_chain_of_jobs_is_not_indented_without_end(slotwise: Show, app: Path) -> None:
    """Its last lines have the width of the twentieth level."""
    jobs = "".join(f"- {{id: j{n}, command: 'true', after: j{n - 1}}}\n" for n in range(1, 40))
    (app / "chain.yaml").write_text(
        f"slotwise: 1\njobs:\n- {{id: j0, command: 'true'}}\n{jobs}"
    )
    lines = slotwise("show", "chain.yaml").stdout.splitlines()
    assert (len(lines), lines[-1].split()) == (40, ["j39", "1", "task", "after", "j38"])
    assert lines[-1].index("j39") == lines[20].index("j20") == 40
