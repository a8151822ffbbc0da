"""Futures as words of commands, and the jobs and calls that a command waits for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from slotwise.core.errors import InputError, shown
from slotwise.jobs.commands import ResultOf
from slotwise.sessions.futures import Future


class WordHost(Protocol):
    """The interface of a session, or of a client, for words of commands."""

    def result_word(self, future: Future[Any]) -> str | ResultOf:
        """The word for the result of a job that may not be over."""
        ...


@dataclass(frozen=True, slots=True)
class CommandInputs:
    """A command of a session, and what it waits for.

    jobs   the ids of jobs
    calls  the futures of calls, which may have no job yet, or one that continues
    """

    session: WordHost
    command: Any
    jobs: frozenset[str]
    calls: Sequence[Future[Any]]

    @classmethod
    def of(cls, session: WordHost, command: Any, after: Any) -> CommandInputs:
        """Find the futures. InputError for one of another session, and for a bad `after`."""
        one = isinstance(after, str | Future) or not isinstance(after, Iterable)
        stated = [after] if one else list(after)
        words = [] if isinstance(command, str) or not isinstance(command, Sequence) else command
        for name in stated:
            if not isinstance(name, str | Future):
                raise InputError(f"after has {shown(name)}; give ids of jobs, or futures")
        found = [one for one in (*stated, *words) if isinstance(one, Future)]
        for future in found:
            if not future._is_of(session):
                raise InputError(
                    "a command waits for a future of another session; pass its result instead"
                )
        calls = [one for one in found if one.task is not None or not one.job]
        jobs = {one.job for one in found if one.task is None and one.job}
        jobs |= {name for name in stated if isinstance(name, str)}
        return cls(session, command, frozenset(jobs), calls)

    def words(self) -> Any:
        """The command, with the results of calls that are done."""
        if isinstance(self.command, str) or not isinstance(self.command, Sequence):
            return self.command
        return [self._word(word) for word in self.command]

    def _word(self, word: Any) -> Any:
        if not isinstance(word, Future):
            return word
        if word.done() and (word.cancelled() or word._raised() is not None):
            # The command is cancelled, unless it needs no result.
            return ResultOf(lambda: "", word.job)
        if word.done():
            return str(word.result())
        if word in self.calls:
            return ResultOf(lambda: "")  # Until it is done, when the words are made again.
        return self.session.result_word(word)
