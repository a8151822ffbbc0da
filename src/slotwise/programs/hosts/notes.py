"""Notes that tasks leave for others that run at the same time: small files."""

from __future__ import annotations

import os
from pathlib import Path

from slotwise.model.errors import WorkFolderError
from slotwise.opening import open_regular
from slotwise.programs.work_folder import create


def note(folder: Path, name: str, text: str | None = None) -> str | None:
    """Leave a note in a folder, if a text is given; the note that is there.

    None if there is no such note, or no such folder: then none is left.
    """
    path = folder / f"note-{name}"
    try:
        if text is not None:
            written = path.with_name(f"{path.name}.written")
            with create(written) as file:
                file.write(text.encode())
            os.replace(written, path)
        with open_regular(path) as there:
            return there.read().decode()
    except FileNotFoundError:
        return None
    except WorkFolderError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
