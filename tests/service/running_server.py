"""A server of its own process for tests of clients."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

from slotwise.core.errors import SlotwiseError
from slotwise.service.transport import Transport
from waiting import until

POOLS = """
[[pools]]
name = "urgent"
slots_min = 1
preemption = { least_after = 0.0, grace = 0.0 }

[[pools]]
name = "narrow"
slots_max = 1

[[pools]]
name = "any"

[[pools]]
name = "other"

[[pools]]
name = "research"
"""
"""Those of the sessions of the tests."""


class RunningServer:
    """Starts, stops and kills a server whose jobs and socket are in one folder."""

    def __init__(self, slots: int = 2, pools: str = POOLS) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="sw"))  # The path of a socket must be short.
        config = self.root / "service.toml"
        config.write_text(f'scheduler = "fair"\n{pools}')
        self.url = f"unix:{self.root / 'service' / 'socket'}"
        self._words = ["--config", str(config), "--slots", str(slots)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it, and wait until it accepts jobs."""
        words = ["serve", "--folder", str(self.root / "service"), *self._words]
        with (self.root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "slotwise", *words], stdout=log, stderr=log
            )
        until(self._answers)
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.root / "log").read_text()
        try:
            return bool(Transport(self.url).get("/v1")["pid"] == self._process.pid)
        except SlotwiseError:
            return False

    def end(self, number: int = signal.SIGTERM) -> None:
        """Send it a signal, and wait for its end."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(60)

    def remove(self) -> None:
        """End it, and remove its folder."""
        if self._process is not None and self._process.poll() is None:
            self.end()
        shutil.rmtree(self.root, ignore_errors=True)
        assert not os.path.exists(self.root / "service" / "socket")
