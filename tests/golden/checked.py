"""What every log of a scripted backend must hold."""

from __future__ import annotations

import re
from pathlib import Path

from slotwise.core.log import following
from slotwise.insight.replay import replay_log


def check_log(log: Path, *places: str) -> None:
    """Assert that the replay of a log is identical; take out of it what this machine adds.

    That is: the versions of what is installed, the account, and these places (FOLDER).
    """
    text = re.sub(r'"versions":\{[^}]*\}', '"versions":{}', log.read_text(), count=1)
    text = re.sub(r',"user":"[^"]*"\}$', "}", text, count=1, flags=re.MULTILINE)
    for place in places:
        text = text.replace(place, "FOLDER")
    log.write_text(text)
    with following(log) as found:
        replay = replay_log(found)
    assert replay.is_identical, replay.difference
    assert replay.decisions > 0
