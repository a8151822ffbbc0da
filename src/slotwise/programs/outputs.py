"""The output of a job: one directory, or several folders in it, each an output directory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slotwise.programs.commit import OutputDirectory
from slotwise.programs.layout import Layout


class Outputs:
    """Opens, commits or aborts the directories of all parts. Every method may raise OSError.

    A part is named by its file and, if it has one, its folder: "good/part-n-00000".
    """

    def __init__(self, layout: Layout, overwrite: bool, job: str, parts: Iterable[str]) -> None:
        names: dict[str, list[str]] = {}
        for part in parts:
            folder, _, name = part.rpartition("/")
            names.setdefault(folder, []).append(name)
        self._layout = layout
        self._folders = {
            folder: OutputDirectory(layout.inside(folder), overwrite, job, names[folder])
            for folder in sorted(names)
        }
        self._committed: set[str] = set()

    def open(self) -> None:
        """Create and lock all directories, or none. InputError if one cannot be used."""
        opened: list[OutputDirectory] = []
        try:
            for directory in self._folders.values():
                directory.open()
                opened.append(directory)
        except BaseException:
            for directory in opened:
                directory.abort()
            raise

    def discard(self, part: str, attempt: int) -> None:
        """Remove what an attempt has staged of a part, if anything; also after the end."""
        folder, _, _ = part.rpartition("/")
        self._folders[folder].discard(self._layout.staged(part, attempt))

    def commit(self, attempts: Mapping[str, int]) -> None:
        """Move the parts that these attempts staged into place, one directory after another.

        After an OSError the commit can be tried again.
        """
        for folder, directory in self._folders.items():
            if folder in self._committed:
                continue
            staged = {
                part.rpartition("/")[2]: self._layout.staged(part, attempt)
                for part, attempt in attempts.items()
                if part.rpartition("/")[0] == folder
            }
            directory.commit(staged)
            self._committed.add(folder)

    def abort(self) -> None:
        """Remove what the job created, and nothing else."""
        for directory in self._folders.values():
            directory.abort()
