"""The folder with the commands of Slurm that a user puts on PATH."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from slotwise.core.errors import InputError
from slotwise.core.files import state_folder

COMMANDS = ("sbatch", "squeue", "scancel", "sacct", "srun", "scontrol", "sinfo", "sacctmgr")


def slurm_folder() -> Path:
    """The folder, with commands that this Python runs; they are written where they differ.

    InputError if it cannot be written.
    """
    folder = state_folder() / "slurm"
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        for name in COMMANDS:
            _write(folder / name, _text(name))
    except OSError as error:
        raise InputError(
            f"{error.filename or folder} cannot be written: {error.strerror}; make it writable,"
            " or set XDG_STATE_HOME"
        ) from error
    return folder


def _text(name: str) -> str:
    # -P: a module in the current folder must not hide one of Python.
    return f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m slotwise.slurm {name} "$@"\n'


def _write(path: Path, text: str) -> None:
    if path.is_file() and path.read_text() == text:
        return
    made = path.with_name(f".{path.name}.{os.getpid()}")
    made.write_text(text)
    made.chmod(0o755)
    os.replace(made, path)
