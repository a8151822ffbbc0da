"""The modules of a user's own folders, in a worker that stays while they change.

A worker serves several programs, which may have modules of the same name in different folders,
and users change their modules between two runs. Modules that were imported from the folders of
one program are therefore removed before a call of another one, or when a file has changed.
Modules of installed packages, and those of the worker itself, stay.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from types import ModuleType

CLOCK_NS = 20_000_000
"""The time of a file may be this much before that of the clock."""


class OwnModules:
    """The modules that were imported from the folders of the last call."""

    def __init__(self) -> None:
        self._folders: tuple[str, ...] = ()
        self._others: frozenset[str] = frozenset()  # the modules that stay
        self._files: dict[str, tuple[str, int, int]] = {}  # path, time and size, by module
        self._count = 0  # of all modules when these were looked for
        self._last = 0  # when that was, in nanoseconds of the clock of files

    def use(self, folders: tuple[str, ...]) -> None:
        """Let the code of a call import from its folders. Costs a `stat` for each module."""
        if not self._others:
            self._others = frozenset(sys.modules)
        self._find()
        self._last = time.time_ns() - CLOCK_NS
        if folders != self._folders or self._have_changed():
            for name in self._files:
                sys.modules.pop(name, None)
            self._files, self._count = {}, 0
            importlib.invalidate_caches()
        if folders != self._folders:
            stay = [one for one in sys.path if one not in self._folders]
            sys.path[:] = [*stay, *(one for one in folders if one not in stay)]
            self._folders = folders

    def _find(self) -> None:
        """Look for modules that were imported since the last call."""
        if len(sys.modules) == self._count:
            return
        for name, module in list(sys.modules.items()):
            if name in self._others or name in self._files or name.startswith("slotwise"):
                continue
            path = _path(module)
            if any(path.startswith(f"{folder}{os.sep}") for folder in self._folders):
                written, size = _sign(path)
                # It was imported since the last call. If the file was written since then, too,
                # that may have been after the import.
                self._files[name] = path, written if written < self._last else 0, size
        self._count = len(sys.modules)

    def _have_changed(self) -> bool:
        return any(_sign(path) != (time, size) for path, time, size in self._files.values())


def _path(module: ModuleType) -> str:
    """The file of a module in Python, which can be imported again; empty for others."""
    path = getattr(module, "__file__", None)
    return path if isinstance(path, str) and path.endswith(".py") else ""


def _sign(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


OWN_MODULES = OwnModules()
"""Those of this process."""
