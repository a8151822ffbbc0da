"""Interrupts that are held back during an operation."""

from __future__ import annotations

import signal
from types import FrameType

import pytest

from slotwise.backends.signals import HeldInterrupts


def test_interrupts_are_raised_at_the_end_of_the_block() -> None:
    """Once, however many came; then the handler is as before."""
    counts = []

    def interrupt_thrice() -> None:
        with HeldInterrupts() as held:
            for _ in range(3):
                signal.raise_signal(signal.SIGINT)
                counts.append(held.count)

    with pytest.raises(KeyboardInterrupt):
        interrupt_thrice()
    assert counts == [1, 2, 3]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_handler_that_does_not_raise_is_called_at_once() -> None:
    """The block is not interrupted."""
    heard = []

    def on_turn(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGINT, on_turn)
    try:
        with HeldInterrupts() as held:
            signal.raise_signal(signal.SIGINT)
            assert heard == [signal.SIGINT]
        assert held.count == 0
        assert signal.getsignal(signal.SIGINT) is on_turn
    finally:
        signal.signal(signal.SIGINT, before)
