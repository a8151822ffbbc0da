"""The errors that a user can cause, as a tree.

SlotwiseError
 ├─ InputError        invalid input: a file, an argument, a program name (exit code 2)
 ├─ RecordError       what a node of a dataflow wrote is no record (its task fails)
 ├─ OutputError       a part of the output cannot be written (its task fails)
 ├─ WorkFolderError   intermediate files cannot be written or read (their task fails)
 ├─ InputChanged      an input file changed since the job was planned (its job fails)
 │   └─ InputDiffers  it is not the same on one host (its task fails)
 ├─ HostsLostError    all hosts of a run have gone, and no others can join (exit code 1)
 └─ MissingExtraError an optional dependency is not installed (exit code 2)
"""

from __future__ import annotations

from importlib.util import find_spec


class SlotwiseWarning(UserWarning):
    """What a user should know and may correct, although nothing has failed."""


class SlotwiseError(Exception):
    """An error that a user can cause and fix; the message names place, value and remedy."""


class InputError(SlotwiseError):
    """Invalid input; nothing was started."""


class RecordError(SlotwiseError, TypeError):
    """What the function of a node wrote is no record, or its key is none; names the node."""


class InputChanged(SlotwiseError):
    """An input file changed since its job was planned: no further attempt can succeed."""


class InputDiffers(InputChanged):
    """An input file is not the same on one host; it may be right on another one."""


class HostsLostError(SlotwiseError):
    """All hosts have gone, and no others can join: what has begun cannot go on."""


class OutputError(SlotwiseError):
    """A part of the output cannot be written where its task runs."""

    @classmethod
    def of(cls, path: str, error: OSError) -> OutputError:
        """The error for a file of the output, with the remedy."""
        return cls(
            f"its output cannot be written to {path}: {error.strerror or error}; check that its"
            " folder is there, on each host of a cluster, that it may be written to and is not"
            " full, and that nothing removes it while the job runs"
        )


class WorkFolderError(SlotwiseError):
    """The intermediate files of a task cannot be written or read where it runs."""

    @classmethod
    def of(cls, folder: str, error: OSError) -> WorkFolderError:
        """The error for a folder of intermediate files, with the remedy."""
        return cls(
            f"its intermediate files cannot be kept in {folder}: {error.strerror or error};"
            " check that this folder exists, that it can be written to and is not full, and"
            " that nothing removes it while the job runs; TMPDIR, or --local-directory of a"
            " Dask worker, names another"
        )


class MissingExtraError(SlotwiseError):
    """An optional dependency is needed and not installed, or cannot be imported (`missing`)."""

    def __init__(self, wanted_for: str, extra: str, missing: ImportError | None = None) -> None:
        reason = "" if missing is None else f" ({missing})"
        super().__init__(
            f"{wanted_for} needs an optional part{reason}: pip install 'slotwise[{extra}]'"
        )


def check_installed(module: str, wanted_for: str, extra: str) -> None:
    """Raise MissingExtraError, naming what needs it, if the module of an extra is missing."""
    if find_spec(module) is None:
        raise MissingExtraError(wanted_for, extra)
