"""Another process, which loads pickles and sends values back."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

from slotwise.jobs.pickling import pickled_by_value

PROGRAM = """
import pickle, sys
from slotwise.jobs.pickling import pickled_by_value
given = [pickle.loads(bytes.fromhex(line)) for line in sys.stdin]
{code}
print(pickled_by_value(value).hex())
"""


def value_from(code: str, *given: object) -> bytes:
    """The pickle of the `value` that code makes in another process of what is `given`."""
    return passed_on(code, *map(pickled_by_value, given))


def passed_on(code: str, *pickles: bytes) -> bytes:
    """The same for values that are pickled already."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(code=code)],
        input="\n".join(one.hex() for one in pickles),
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return bytes.fromhex(done.stdout)


def shown_by(code: str, *given: Any) -> str:
    """What a `value` is in another process, as text."""
    return str(pickle.loads(value_from(f"{code}\nvalue = str(value)", *given)))
