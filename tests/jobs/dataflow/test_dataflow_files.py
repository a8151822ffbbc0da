"""Dataflows that a workload file states, or that it finds in Python files."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotwise import Cluster, DataflowJob, InputError, Workload, read_workload, simulate
from slotwise.jobs.dataflow.loading import flow_of, load_flow, load_function
from slotwise.jobs.dataflow.planning import plan_dataflow
from slotwise.sources import read_source
from slotwise.workload.file import parse_workload

APP = """
from collections import Counter
import slotwise

def words(lines):
    for line in lines:
        yield from line.split()

def count(words, least=1):
    yield from sorted(pair for pair in Counter(words).items() if pair[1] >= least)

def itself(word):
    return word

def flow():
    made = slotwise.Dataflow()
    split = made.node(words, made.read("text.txt"))
    made.write(made.node(count, split.tcp(by=itself), copies=2))
    return made

other = flow()
number = 7
"""

STATED = """
slotwise: 1
cluster: {slots: 4}
jobs:
  - id: words
    output: out
    slots_max: 3
    dataflow:
      nodes:
        - name: count
          function: app.py:count
          copies: 2
          parameters: {least: 2}
          work: 3
          reads: [{node: split, kind: tcp, by: "app.py:itself"}]
        - {name: split, function: "app.py:words", reads: [lines]}
        - {name: lines, inputs: text.txt, input_format: text, split_bytes: 1000}
      write: [{node: count, output_format: jsonl}]
  - id: app
    output: other
    dataflow: {app: app.py:flow}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with app.py, a text and a workload file."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "text.txt").write_text("to be or not to be\n")
    (tmp_path / "jobs.yaml").write_text(STATED)
    return tmp_path


def jobs(folder: Path) -> list[DataflowJob]:
    """The jobs of the workload file."""
    found = read_workload(folder / "jobs.yaml").jobs
    return [job for job in found if isinstance(job, DataflowJob)]


def test_a_file_states_nodes_in_any_order(folder: Path) -> None:
    """What it states is the same as what Python calls build."""
    stated = jobs(folder)[0]
    flow = flow_of(stated.flow, folder)
    assert sorted(flow.evaluate(base_dir=folder)["count"]) == [("be", 2), ("to", 2)]
    graph = flow.graph(folder)
    assert [str(channel) for channel in graph.channels] == [
        "direct channel from lines to split",
        "tcp channel from split to count",
    ]
    assert (graph.nodes["count"].work, graph.nodes["count"].copies) == (3.0, 2)
    assert [written.output_format for written in graph.written] == ["jsonl"]


def test_a_dataflow_becomes_phases(folder: Path) -> None:
    """A stage is a phase; a bundle of several groups is a gang."""
    job = jobs(folder)[1]
    planned = plan_dataflow("app", job.flow, "out", base_dir=folder, slots_max=3)
    (phase,) = planned.job.phases
    assert (phase.name, phase.tasks.count, phase.gang, phase.slots) == (
        "words+count",
        3,
        True,
        1,
    )
    assert planned.output == str(folder / "out")


def test_a_dataflow_is_simulated(folder: Path) -> None:
    """A simulation runs nothing and needs no output to be free."""
    (folder / "out").mkdir()
    result = simulate(folder / "jobs.yaml", "flex")
    assert {name: times["completion"] is not None for name, times in result.jobs.items()} == {
        "words": True,
        "app": True,
    }
    assert result.jobs["words"]["response"] >= 3.0  # The work of a copy of count.


def test_a_dataflow_of_python_is_simulated(folder: Path) -> None:
    """flow.job gives an entry for all functions that take jobs."""
    flow = load_flow("app.py:other", folder)
    workload = Workload((flow.job("words", "out", deadline=60.0),), folder=folder)
    (job,) = read_source(workload).jobs(Cluster.of_slots(4))
    assert (job.id, job.deadline, [phase.name for phase in job.phases]) == (
        "words",
        60.0,
        ["words+count"],
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("app.py:missing", "'app.py:missing': 'missing' not found; found other"),
        ("app.py:number", "'app.py:number' is 7, not a slotwise.Dataflow; the file has other"),
        ("app.py:words", "'app.py:words' cannot be called: TypeError:"),
        ("sys:exit", "'sys:exit' cannot be called: SystemExit:"),
        ("none.py:flow", "dataflow 'none.py:flow': file "),
        (
            "no_module:flow",
            "'no_module:flow': importing 'no_module' failed: ModuleNotFoundError",
        ),
    ],
)
def test_places_without_a_dataflow_are_refused(folder: Path, spec: str, message: str) -> None:
    """The message says what is there."""
    with pytest.raises(InputError) as refused:
        load_flow(spec, folder)
    assert message in str(refused.value)


def test_the_only_dataflow_of_a_file_needs_no_name(folder: Path) -> None:
    """With several, one must be named."""
    assert load_flow("app.py", folder).evaluate(base_dir=folder)
    (folder / "app.py").write_text(APP + "second = flow()\n")
    with pytest.raises(InputError) as refused:
        load_flow("app.py", folder)
    assert str(refused.value) == (
        "'app.py' has several dataflows: other, second; name one, as app.py:flow, where flow ="
        " slotwise.Dataflow()"
    )


def test_functions_of_modules_are_found() -> None:
    """A function may come from an installed module."""
    assert load_function("os.path:basename")("a/b") == "b"
    with pytest.raises(InputError, match="write file"):
        load_function("basename")
    with pytest.raises(
        InputError, match="function 'os:sep' is '/'; name a function or a class"
    ):
        load_function("os:sep")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "node: split,",
            "node: spilt,",
            "node 'count' reads unknown node 'spilt'; did you mean 'split'?",
        ),
        (
            "{node: count,",
            "{node: cuont,",
            "write names unknown node 'cuont'; did you mean 'count'?",
        ),
        ("name: lines", "name: split", "two nodes are named 'split'; rename one"),
        ("reads: [lines]", "reads: [count]", "in a circle: count -> split -> count"),
        ("copies: 2", "copies: 5", "the cluster holds 4 of them: make a channel file, or give"),
        ("by: ", "output: bad, by: ", "node 'split' has no output 'bad'"),
        (":itself", ":nothing", "'app.py:nothing': 'nothing' not found; found Counter,"),
    ],
)
def test_mistakes_in_files_are_refused(folder: Path, old: str, new: str, message: str) -> None:
    """The message names the job and the node."""
    workload = parse_workload(STATED.replace(old, new), folder)
    with pytest.raises(InputError) as refused:
        simulate(workload, "flex")
    assert str(refused.value).startswith("jobs[0] (line 5): job 'words': ")
    assert message in str(refused.value)


def test_arguments_of_a_job_are_checked(folder: Path) -> None:
    """The output, the memory and what is written."""
    flow = load_flow("app.py:other", folder)
    for settings, message in (
        ({"output": ""}, "job 'a': no output; name a directory"),
        (
            {"output": "out", "memory_bytes": 1},
            "job 'a': memory_bytes is 1; give a whole number",
        ),
    ):
        with pytest.raises(InputError) as refused:
            plan_dataflow("a", flow, base_dir=folder, **settings)  # type: ignore[arg-type]
        assert str(refused.value).startswith(message)
    nothing = {"nodes": [{"name": "a", "values": [1]}], "write": []}
    with pytest.raises(InputError, match="the dataflow writes nothing; add"):
        plan_dataflow("a", nothing, "out", base_dir=folder)
    with pytest.raises(InputError, match="7 is not a dataflow; give a"):
        plan_dataflow("a", 7, "out", base_dir=folder)  # type: ignore[arg-type]
