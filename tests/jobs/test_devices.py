"""The GPUs of a machine, by a stand-in for `nvidia-smi`, and the variables of a task."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotwise.jobs.devices import gpus, variables

LISTED = """\
0, GPU-aa11, NVIDIA A100-SXM4-40GB
1, GPU-bb22, NVIDIA A100-SXM4-40GB
2, GPU-cc33, Tesla T4, 16 GB
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH with an `nvidia-smi` that lists three GPUs if it is asked as it should be."""
    query = "--query-gpu=index,uuid,name --format=csv,noheader"
    script(tmp_path, f'[ "$*" = "{query}" ] || exit 2\nprintf "{LISTED}"')
    return f"{tmp_path}:/usr/bin:/bin"


def script(folder: Path, text: str) -> None:
    """An `nvidia-smi` that runs this."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, ["NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", "Tesla T4, 16 GB"]),
        ("2,0", ["Tesla T4, 16 GB", "NVIDIA A100-SXM4-40GB"]),
        ("GPU-cc", ["Tesla T4, 16 GB"]),
        ("0,7,1", ["NVIDIA A100-SXM4-40GB"]),
        ("MIG-dd44", ["MIG-dd44"]),
        ("-1", []),
        ("", []),
    ],
)
def test_visible_devices_limit_the_gpus(
    path: str, visible: str | None, found: list[str]
) -> None:
    """A word is a number, a start of a UUID, or a part of a GPU; an unknown one ends them."""
    environ = {"PATH": path} | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    assert gpus(environ) == tuple(found)


@pytest.mark.parametrize("text", ["exit 9", "echo No devices were found", "sleep 60"])
def test_a_failing_program_means_no_gpus(
    path: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails, prints something else, or hangs."""
    monkeypatch.setattr("slotwise.jobs.devices.QUERY_SECONDS", 0.1)
    script(tmp_path, f"exec {text}" if "sleep" in text else text)
    assert gpus({"PATH": path}) == ()


def test_without_the_program_there_are_no_gpus(tmp_path: Path) -> None:
    """A machine without it has none that a task could be given."""
    assert gpus({"PATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": "0"}) == ()


def test_a_task_gets_its_devices_by_number() -> None:
    """CUDA then numbers them as `nvidia-smi` does."""
    assert variables({}, (0, 2)) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "0,2",
        "SLOTWISE_DEVICES": "0,2",
    }


def test_a_task_gets_its_devices_of_the_visible_ones() -> None:
    """The words of the environment of the host are passed on."""
    environ = {"CUDA_VISIBLE_DEVICES": "5, GPU-aa11,3"}
    assert variables(environ, (1, 2)) == {
        "CUDA_VISIBLE_DEVICES": "GPU-aa11,3",
        "SLOTWISE_DEVICES": "1,2",
    }
