"""The start of a scheduler with the gate: wrong options end it with one clear message."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from distributed import LocalCluster

import dask
import slotwise.dask as gate
from gated_cluster import Cluster
from slotwise.core.errors import InputError
from slotwise.core.log import read_log
from slotwise.core.pools import Pool
from slotwise.dask.preload import read_options
from waiting import until

MAX_SECONDS = 60

FAULTS = {
    "no file": (None, "No such file or directory; name a YAML file with the options"),
    "no YAML": ("pools: [", "line 1, column 9: not YAML or JSON"),
    "a wrong value": (
        "scheduler: best\n",
        "scheduler (line 1) is 'best': unknown scheduler; known: ",
    ),
    "a log without folder": (
        "log: none/gate.jsonl\n",
        "log 'none/gate.jsonl': No such file or directory; name another file",
    ),
    "a log that is another file": (
        "log: gate.yaml\n",
        "log 'gate.yaml' exists and was not written by slotwise",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_options_are_found_before_the_start(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the place, the value and the remedy."""
    text, message = FAULTS[fault]
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("gate.yaml").write_text(text)
    with pytest.raises(InputError) as error:
        read_options("gate.yaml")
    assert message in str(error.value)


@pytest.mark.parametrize("wrong", [{"scheduler": "best"}, "flex"])
def test_the_configuration_of_dask_is_checked(wrong: object) -> None:
    """What is under `slotwise:` there must be options, too."""
    with (
        dask.config.set(slotwise=wrong),
        pytest.raises(InputError, match="under `slotwise:` in Dask's configuration: "),
    ):
        read_options(None)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_the_command_refuses_wrong_options(fault: str, tmp_path: Path) -> None:
    """`dask scheduler` ends with exit code 2, one line that says why, and no traceback."""
    text, message = FAULTS[fault]
    if text is not None:
        (tmp_path / "gate.yaml").write_text(text)
    arguments = ["--preload", "slotwise.dask", "--slotwise-config", "gate.yaml"]
    check_refused(start_scheduler(tmp_path, *arguments), message)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ('["--slotwise-config", "gate.yaml"]', "No such file or directory; name a YAML file"),
        pytest.param('["--slotwise-file", "x"]', "No such option", marks=pytest.mark.slow),
    ],
)
def test_a_preload_in_the_environment_refuses_wrong_options(
    argument: str, message: str, tmp_path: Path
) -> None:
    """Dask parses its arguments while the scheduler starts, which ends in the same way."""
    environment = {
        "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": '["slotwise.dask"]',
        "DASK_DISTRIBUTED__SCHEDULER__PRELOAD_ARGV": argument,
    }
    check_refused(start_scheduler(tmp_path, **environment), message)


def test_a_local_cluster_does_not_start_without_its_gate(tmp_path: Path) -> None:
    """The process of the user goes on, with an error that ends with what was wrong."""
    arguments = ["--slotwise-config", str(tmp_path / "gate.yaml")]
    with pytest.raises(RuntimeError) as error:
        LocalCluster(
            n_workers=0,
            processes=False,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"preload": ["slotwise.dask"], "preload_argv": [arguments]},
        )
    reason = (
        "gate.yaml: No such file or directory; name a YAML file with the options of the gate"
    )
    assert str(error.value).endswith(reason)
    assert str(error.value.__cause__).endswith(reason)
    assert error.value.__cause__.__cause__ is None


def test_a_gate_whose_log_cannot_be_written_is_not_installed(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """The client gets the error; the gate that was there before goes on."""
    cluster = make_cluster()
    cluster.install("fair")
    before = cluster.gate
    with pytest.raises(InputError, match="No such file or directory; name another file"):
        gate.install(cluster.client(), log=str(tmp_path / "none" / "gate.jsonl"))
    with pytest.raises(InputError, match="scheduler is 'best': unknown"):
        gate.install(cluster.client(), scheduler="best")
    assert cluster.gate is before
    assert not before.is_open


def test_a_gate_takes_over_the_log_of_the_one_before(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """The file is locked while a gate writes it; the new gate begins a new log there."""
    cluster = make_cluster()
    log = tmp_path / "gate.jsonl"
    cluster.install("fair", log=str(log))
    assert cluster.client().submit(abs, -1).result() == 1
    cluster.install("flex", log=str(log))
    assert cluster.client().submit(abs, -2).result() == 2
    cluster.check_empty()
    second = cluster.gate
    cluster.client().unregister_scheduler_plugin("slotwise")
    until(lambda: second.is_open)  # Then its log is closed.
    assert read_log(log).header.scheduler["name"] == "flex"


@pytest.mark.filterwarnings("error")
def test_a_gate_is_replaced_if_its_options_change(make_cluster: Callable[..., Cluster]) -> None:
    """Without a warning. The same options leave the gate there, with what it holds."""
    cluster = make_cluster()
    cluster.install("fair", pools=[Pool("reports")])
    first = cluster.gate
    cluster.install("fair", pools=[{"name": "reports"}])
    assert cluster.gate is first
    assert not first.is_open
    cluster.install("fair")
    assert cluster.gate is not first
    assert first.is_open
    second = cluster.gate
    cluster.local.loop.add_callback(second.open)  # As after a fault.
    until(lambda: second.is_open)
    cluster.install("fair")
    assert cluster.gate is not second
    assert not cluster.gate.is_open


def start_scheduler(
    folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Start the real command on this machine and wait until it ends."""
    command = [str(Path(sys.executable).with_name("dask")), "scheduler"]
    command += ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"]
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )


def check_refused(done: subprocess.CompletedProcess[str], message: str) -> None:
    """The command ended with this message as its last line."""
    assert done.returncode == 2, done.stderr
    error = done.stderr.splitlines()[-1]
    assert error.startswith("Error: ")
    assert message in error
    assert "Traceback" not in done.stderr
