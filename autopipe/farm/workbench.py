"""A worker's handle of its bench process: thread-safe, restarted after a timeout or a crash."""

import json
import subprocess
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Any, Final

from autopipe.errors import AutopipeError, SetupError
from autopipe.farm.wire import MESSAGE, WorkAnswer
from autopipe.processes import failure
from autopipe.processes.ending import end_process
from autopipe.processes.link import Link
from autopipe.processes.start import program

BENCH: Final = "autopipe.farm.bench"
"""The module of the process that builds and times."""

_START: Final = 120.0
"""Seconds that importing TVM may take on a busy machine."""

_GRACE: Final = 15.0
"""Seconds added to the deadlines of a trial before a silent bench is ended."""


class Workbench:
    """The bench of this worker. Raises AutopipeError if it cannot be started."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._next = 0
        self._waiting: dict[int, SimpleQueue[str | None]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._link: Link
        self._heard = monotonic()
        self.facts: dict[str, Any] = {}
        """The facts of this machine."""
        self._start_bench()

    def do(self, order: str, seconds: float) -> str:
        """Execute an order, during which the bench may be silent for so many seconds.

        Called in threads; never raises.
        """
        answers: SimpleQueue[str | None] = SimpleQueue()
        try:
            with self._lock:
                if self._process is None:
                    self._start_bench()
                self._next += 1
                self._waiting[self._next] = answers
                if len(self._waiting) == 1:
                    self._heard = monotonic()
                process = self._process
                self._link.send([self._next, order], _GRACE)
        except (AutopipeError, EOFError, TimeoutError) as error:
            self._end_bench(self._process)
            return self._format_lost_answer(f"the measuring process cannot be asked: {error}")
        answer = self._wait_for_answer(answers, seconds + _GRACE)
        if answer is None:
            self._end_bench(process)
            return self._format_lost_answer(
                f"the measuring process ended, or sent nothing for {seconds:g} s"
            )
        return answer

    def close(self) -> None:
        """End the bench."""
        self._end_bench(self._process)

    def _wait_for_answer(self, answers: SimpleQueue[str | None], silence: float) -> str | None:
        """Wait for an answer; None after `silence` seconds without any message of the bench."""
        while True:
            try:
                return answers.get(timeout=max(0.1, self._heard + silence - monotonic()))
            except Empty:
                if monotonic() - self._heard >= silence:
                    return None

    def _start_bench(self) -> None:
        try:
            self._process, self._link = program(BENCH, subprocess.DEVNULL, variables={})
            bench_facts, refusal = failure.decode_answer(self._link.receive(_START, MESSAGE))
        except (OSError, EOFError, TimeoutError) as error:
            raise SetupError(f"the measuring process does not start: {error}") from error
        if refusal is not None:
            raise refusal.error()
        self.facts = bench_facts
        Thread(target=self._read_answers, args=(self._process, self._link), daemon=True).start()

    def _read_answers(self, process: "subprocess.Popen[bytes]", link: Link) -> None:
        with suppress(EOFError, OSError, ValueError):
            while True:
                number, text = json.loads(link.receive(most=MESSAGE))
                self._heard = monotonic()
                answers = self._waiting.pop(number, None)
                if answers is not None:
                    answers.put(text)
        self._end_bench(process)

    def _end_bench(self, process: "subprocess.Popen[bytes] | None") -> None:
        """End this bench process, and wake all waiting threads."""
        with self._lock:
            if process is None or self._process is not process:
                return
            self._process = None
            end_process(process, patience=_GRACE)
            waiting, self._waiting = self._waiting, {}
        for answers in waiting.values():
            answers.put(None)

    def _format_lost_answer(self, reason: str) -> str:
        return WorkAnswer("", lost=reason).text()
