"""Files of defaults: who states what for live work, and what is said of wrong ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

QUICK = """\
slotwise: 1
jobs: [{id: a, pool: prod, phases: [{name: map, work: 0.02, tasks: 2}]}]
"""

POOLED = QUICK.replace("jobs:", "cluster: {slots: 4}\npools: {prod: 7}\njobs:")


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file."""
    file = tmp_path / "config" / "slotwise" / "slotwise.toml"
    file.parent.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return file


@pytest.fixture
def project(folder: Path) -> Path:
    """The file of the project, beside the workload."""
    return folder / "slotwise.toml"


def header(slotwise: Any, command: str, workload: str = QUICK) -> tuple[dict[str, Any], str]:
    """The first line of the log of a command, and what it says on stderr."""
    Path("jobs.yaml").write_text(workload)
    done = slotwise(*command.split(), "--json", "--log", "log.jsonl")
    assert done.exit_code == 0, done.output
    return json.loads(Path("log.jsonl").read_text().partition("\n")[0]), done.stderr


def facts(found: dict[str, Any]) -> tuple[str, int, int, float]:
    """The scheduler, the slots, the attempts and the weight of the pool of a run."""
    weights = {pool["name"]: pool["weight"] for pool in found["pools"]}
    (host,) = found["cluster"]
    slots = host["slots"]["task"]
    return found["scheduler"]["name"], slots, found["attempts_max"], weights["prod"]


PROJECT = 'scheduler = "fair"\nslots = 3\nattempts = 2\nepoch = "500ms"\npools = {prod = 5}\n'


def test_a_project_states_pools_scheduler_and_slots(slotwise: Any, project: Path) -> None:
    """A run uses them and says where they are from."""
    project.write_text(PROJECT)
    found, said = header(slotwise, "run jobs.yaml")
    assert facts(found) == ("fair", 3, 2, 5.0)
    assert found["scheduler"]["epoch_seconds"] == 0.5
    assert said.splitlines()[0] == f"slotwise: defaults are from {project}"


def test_what_a_workload_and_a_command_state_goes_before(slotwise: Any, project: Path) -> None:
    """An option that has its usual value is stated, too."""
    project.write_text(PROJECT)
    found, _ = header(slotwise, "run jobs.yaml --scheduler flex --attempts 4", POOLED)
    assert facts(found) == ("flex", 4, 4, 7.0)
    found, _ = header(slotwise, "run jobs.yaml --slots 2", POOLED)
    assert facts(found) == ("fair", 2, 2, 7.0)


def test_resources_of_this_machine(slotwise: Any, project: Path) -> None:
    """Each is that of the command, else of the workload, else of the file of defaults."""
    stated = 'resources = {memory = "1 MiB", license = 1, disk = 1}'
    project.write_text(f"{stated}\npools = {{prod = 1}}")
    text = QUICK.replace(
        "jobs:", "cluster: {slots: 1, resources: {license: 2, disk: 2}}\njobs:"
    )
    found, _ = header(slotwise, "run jobs.yaml --resources disk=3", text)
    (host,) = found["cluster"]
    has = host["resources"]
    assert (has["memory"], has["license"], has["disk"]) == (1 << 20, 2, 3)


def test_the_project_goes_before_the_user(slotwise: Any, project: Path, user: Path) -> None:
    """Key by key; both files are named."""
    user.write_text('scheduler = "fifo"\nattempts = 9\npools = {prod = 1}')
    project.write_text("slots = 1\npools = {prod = 2}")
    found, said = header(slotwise, "run jobs.yaml")
    assert facts(found) == ("fifo", 1, 9, 2.0)
    assert said.splitlines()[0] == f"slotwise: defaults are from {project} and {user}"


def test_a_live_comparison_has_defaults(slotwise: Any, project: Path) -> None:
    """It compares other schedulers, with the same slots and pools."""
    project.write_text(PROJECT)
    Path("jobs.yaml").write_text(QUICK)
    asked = ("--live", "--schedulers", "fifo", "--log", "log.jsonl")
    done = slotwise("compare", "jobs.yaml", *asked)
    assert done.exit_code == 0, done.output
    found = json.loads(Path("log-fifo.jsonl").read_text().partition("\n")[0])
    assert facts(found) == ("fifo", 3, 2, 5.0)


def test_plans_and_simulations_read_no_defaults(slotwise: Any, project: Path) -> None:
    """Not even a wrong file has an effect."""
    project.write_text("this is not TOML")
    found, said = header(slotwise, "simulate jobs.yaml", POOLED)
    assert (facts(found), said) == (("flex", 4, 4, 7.0), "")
    assert slotwise("plan", "jobs.yaml").exit_code == 0
    assert slotwise("compare", "jobs.yaml").exit_code == 0


def test_the_nearest_file_of_the_project(slotwise: Any, folder: Path) -> None:
    """Folders above count up to the one with .git; without it, only the workload's own."""
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    (folder / "slotwise.toml").write_text('scheduler = "fifo"')
    (inner / "jobs.yaml").write_text(QUICK.replace("pool: prod, ", ""))
    said = [slotwise("run", "a/b/jobs.yaml").stderr]
    (folder / ".git").mkdir()
    said.append(slotwise("run", "a/b/jobs.yaml").stderr)
    (folder / "a" / "slotwise.toml").write_text('scheduler = "fair"')
    said.append(slotwise("run", "a/b/jobs.yaml").stderr)
    named = [text.splitlines()[0].rpartition(" from ")[2] for text in said]
    assert named[1:] == [f"{folder}/slotwise.toml", f"{folder}/a/slotwise.toml"]
    assert "defaults" not in said[0]


WRONG = {
    'schedular = "fair"': "schedular: unknown key 'schedular'; did you mean 'scheduler'?",
    'scheduler = "fairr"': "scheduler is 'fairr': unknown scheduler; did you mean 'fair'?",
    'assigner = "flo"': "assigner is 'flo': unknown assigner; did you mean 'flow'?",
    "slots = 0": "slots is 0: expected a number >= 1",
    "resources = {memory = -1}": "resources.memory is -1: expected a number >= 0",
    "attempts = 0": "attempts is 0: expected a number >= 1",
    'epoch = "soon"': "epoch is 'soon': expected seconds, or a duration such as 5m or 1h30m",
    "pools = 3": "pools is 3: expected a list of pools, or pools by name, such as {prod: 2}",
    '[pools.a]\nparent = "b"': "pools.a: unknown parent 'b'; known: a",
    "[pools.a]\nwieght = 2": "pools.a.wieght: unknown key 'wieght'; did you mean 'weight'?",
    "slots = =": "not TOML: Invalid value (at line 1, column 9); correct it",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_file(text: str, slotwise: Any, project: Path) -> None:
    """The message has the file, the key and the remedy; nothing is run."""
    project.write_text(text)
    done = slotwise("run", "jobs.yaml")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"slotwise: {project}: ")
    assert done.stderr.endswith(f"{WRONG[text]}\n")


def test_durations_as_options(slotwise: Any) -> None:
    """Options in seconds take durations, too."""
    asked = "--epoch 500ms --assigner delay --waits 2s,1m --preempt least=1m,grace=2"
    found, _ = header(slotwise, f"simulate jobs.yaml {asked}", POOLED)
    assert found["scheduler"]["epoch_seconds"] == 0.5
    assert found["scheduler"]["waits"] == [2.0, 60.0]
    assert {pool["preemption"]["least_after"] for pool in found["pools"]} == {60.0}
    done = slotwise("simulate", "jobs.yaml", "--epoch", "5x")
    assert (done.exit_code, "'5x': expected seconds, or a duration" in done.stderr) == (2, True)
