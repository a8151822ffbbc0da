"""Programs that hang, as the text of a module."""

from __future__ import annotations

STUCK = """\
import subprocess, time
from pathlib import Path
from slotwise import MapReduce

class Stuck(MapReduce):
    def __init__(self, folder):
        self.folder = folder
    def map(self, offset, line):
        child = subprocess.Popen(["sleep", "600"])
        (Path(self.folder) / f"pid-{child.pid}").write_text("")
        yield line, 1
        time.sleep(600)
"""
"""Each of its maps starts a process, leaves its number in a file, and never ends."""
