"""The GPUs of this machine, and the environment variables that give a task some of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable that says which GPUs a process may use, by number or by UUID."""

ORDER = "CUDA_DEVICE_ORDER"
"""The variable that says how CUDA numbers GPUs. By PCI_BUS_ID it does as `nvidia-smi` does."""

DEVICES = "SLOTWISE_DEVICES"
"""The variable with the numbers of the GPUs of a task on its host, such as 0,2."""

QUERY = ("--query-gpu=index,uuid,name", "--format=csv,noheader")

QUERY_SECONDS = 20.0
"""How long `nvidia-smi` may take. Without its persistence mode it needs seconds."""


def gpus(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The names of the GPUs that tasks may use; the place of each is its number here.

    There are none without `nvidia-smi` on the PATH, or if it fails. `CUDA_VISIBLE_DEVICES`
    limits and orders them as CUDA reads it: an unknown word ends the list.
    """
    environ = os.environ if environ is None else environ
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if program is None:
        return ()
    try:
        asked = subprocess.run(
            [program, *QUERY], capture_output=True, text=True, timeout=QUERY_SECONDS, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()
    rows = [line.split(", ", 2) for line in asked.stdout.splitlines()]
    known = {
        index: (uuid, name) for index, uuid, name in (row for row in rows if len(row) == 3)
    }
    if VISIBLE not in environ:
        return tuple(name for _, name in known.values())
    found: list[str] = []
    for word in _words(environ[VISIBLE]):
        names = [name for index, (uuid, name) in known.items() if _means(word, index, uuid)]
        if not names and not word.startswith("MIG-"):
            break
        found.append(names[0] if names else word)  # A part of a GPU is named by its UUID only.
    return tuple(found)


def variables(environ: Mapping[str, str], devices: Sequence[int]) -> dict[str, str]:
    """The variables that give a task these GPUs of its host, by their numbers of `gpus`.

    `environ` is the environment of the host, whose `CUDA_VISIBLE_DEVICES` limits them.
    """
    numbers = {DEVICES: ",".join(map(str, devices))}
    if VISIBLE not in environ:
        return {ORDER: "PCI_BUS_ID", VISIBLE: numbers[DEVICES], **numbers}
    words = _words(environ[VISIBLE])
    return {VISIBLE: ",".join(words[n] for n in devices if n < len(words)), **numbers}


def given_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables in the environment of a task that give it GPUs; none without GPUs."""
    if DEVICES not in environ:
        return {}
    return {name: environ[name] for name in (DEVICES, VISIBLE, ORDER) if name in environ}


def _words(visible: str) -> list[str]:
    return [word.strip() for word in visible.split(",") if word.strip()]


def _means(word: str, index: str, uuid: str) -> bool:
    """Whether a word of `CUDA_VISIBLE_DEVICES` is a GPU: its index, or a start of its UUID."""
    return word == index or (word.startswith("GPU-") and uuid.startswith(word))
