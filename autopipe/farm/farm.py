"""A farm as a run sees it: who is there, orders that go out, and answers that come back."""

import json
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from autopipe.config.problem import format_value
from autopipe.config.tuning import Reach
from autopipe.errors import AutopipeError, SetupError, StageError
from autopipe.farm.certificates import INSTALL
from autopipe.farm.facts import describe_differences, list_machine_differences
from autopipe.farm.wire import MESSAGE, WorkAnswer, WorkOrder
from autopipe.processes import failure
from autopipe.processes.ending import end_process
from autopipe.processes.link import Link, encode_message
from autopipe.processes.start import program

AGENT: Final = "autopipe.farm.agent"
"""The module that speaks to the scheduler."""

_START: Final = 30.0
"""Seconds that starting the agent may take, besides connecting."""

SILENCE: Final = 15.0
"""Seconds in which a scheduler has to answer a ping."""

_SILENT: Final = 30.0
"""Seconds after which an agent that says nothing is ended; it is asked every few."""

_ATTEMPTS: Final = 3
"""Workers whose answers to an order are rejected before that is the order's failure."""

_GRACE: Final = 5.0

_PAUSE: Final = 1.0
"""Seconds between two attempts to find the scheduler again."""


@dataclass(frozen=True, slots=True)
class FarmWorker:
    """A worker that is there."""

    name: str
    label: str
    facts: Mapping[str, Any]
    slots: int
    """Orders that it takes at a time."""
    orders: int
    """Those that it has, of all runs."""


class Farm:
    """The workers of one label. Every method raises SetupError or StageError."""

    def __init__(
        self, reach: Reach, label: str, warn: Callable[[str], None] = lambda _: None
    ) -> None:
        """Ask the scheduler who is there; `warn` is told of what goes wrong later on."""
        self._reach = reach
        self.label = label
        self._warn = warn
        self._next = 0
        self._open: dict[int, tuple[WorkOrder, float]] = {}
        self._done: dict[int, WorkAnswer | str] = {}
        self._told: dict[int, Callable[[WorkAnswer | str], None]] = {}
        self._failed: dict[int, int] = {}
        self._device: str | None = None
        self._process: subprocess.Popen[bytes]
        self._link: Link
        self._alone_since: float | None = None
        self._rejected: set[str] = set()
        self.workers: tuple[FarmWorker, ...] = ()
        """All workers, whatever their label."""
        self.refused: Sequence[str] = ()
        """Why others were not let in."""
        self._start_agent()

    @property
    def own(self) -> list[FarmWorker]:
        """The workers of this label whose answers are believed."""
        own = (worker for worker in self.workers if worker.label == self.label)
        return [worker for worker in own if worker.name not in self._rejected]

    @property
    def width(self) -> int:
        """How many orders the workers of this label take at a time."""
        return max(1, sum(worker.slots for worker in self.own))

    def expect(self, device: str) -> None:
        """Reject answers from another device."""
        self._device = device

    def submit(
        self,
        order: WorkOrder,
        seconds: float,
        tell: Callable[[WorkAnswer | str], None] | None = None,
    ) -> int:
        """Hand out an order, in which a worker may say nothing for so many seconds.

        `tell` is called with the answer as soon as it comes, whatever is waited for then.
        """
        self._next += 1
        if tell is not None:
            self._told[self._next] = tell
        self._open[self._next] = order, seconds
        self._submit_order(self._next)
        return self._next

    def cancel(self, numbers: Iterable[int]) -> None:
        """Give up orders."""
        gone = [number for number in numbers if self._open.pop(number, None)]
        for number in gone:
            self._done.pop(number, None)
            self._told.pop(number, None)
            self._failed.pop(number, None)
        if gone:
            self._send_message({"do": "cancel", "numbers": gone})

    def answered(self, numbers: Iterable[int]) -> dict[int, WorkAnswer | str]:
        """Wait until one of these orders at least is done; a text says why one could not be.

        Raises StageError where the farm is gone, or nobody is there for too long.
        """
        wanted = set(numbers)
        while not (found := wanted & self._done.keys()):
            self.pump(_PAUSE)
            self._check_alone()
        return {number: self._done.pop(number) for number in sorted(found)}

    def pump(self, seconds: float) -> None:
        """Take what the agent says, for which it has so long."""
        try:
            self._take_message(json.loads(self._link.receive(seconds)))
        except TimeoutError:
            if time.monotonic() - self._heard >= _SILENT:
                self._begin_again("the process that speaks to it said nothing")
            self._send_message({"do": "pulse"})
        except EOFError:
            self._begin_again("the process that speaks to it ended")

    def close(self) -> None:
        """End the agent; what is open is given up."""
        self._link.close()
        end_process(self._process, patience=_GRACE)

    def _start_agent(self) -> None:
        reach = self._reach
        self._process, self._link = program(AGENT, subprocess.DEVNULL, more={})
        try:
            self._send_message({
                "scheduler": reach.scheduler, "certificates": reach.certificates,
                "label": self.label, "connect": reach.connect_timeout, "silence": SILENCE,
            })  # fmt: skip
            seconds = reach.connect_timeout + _START
            found, failed = failure.decode_answer(self._link.receive(seconds))
        except (EOFError, TimeoutError):
            self.close()
            raise SetupError(
                f"{reach.scheduler}: the process that asks it gives no answer; {INSTALL}"
            ) from None
        if failed is not None:
            self.close()
            raise failed.error()
        self._heard = time.monotonic()
        self._update_workers(found)

    def _begin_again(self, why: str) -> None:
        """Find the scheduler again, and hand out anew what is open. Raises StageError."""
        self._warn(f"{self._reach.scheduler} is lost: {why}; looking for it")
        until = time.monotonic() + self._reach.wait_timeout
        self.close()
        while True:
            try:
                self._start_agent()
            except AutopipeError as error:
                if time.monotonic() >= until:
                    told = f"the farm is lost: {error}; what was measured is kept: run it again"
                    raise StageError(told) from error
                time.sleep(_PAUSE)
            else:
                break
        for worker in self._rejected:
            self._send_message({"do": "reject", "worker": worker})
        for number in list(self._open):
            self._submit_order(number)

    def _submit_order(self, number: int) -> None:
        order, seconds = self._open[number]
        message = encode_message({
            "do": "submit", "number": number, "order": order.text(), "seconds": seconds,
            "identity": order.identity(), "failed": self._failed.get(number, 0),
        })  # fmt: skip
        if len(message) > MESSAGE:
            self._finish_order(number, f"its order has {len(message)} bytes, of {MESSAGE} at most")
        else:
            self._write_line(message)

    def _send_message(self, message: Mapping[str, Any]) -> None:
        self._write_line(encode_message(message))

    def _write_line(self, line: bytes) -> None:
        try:
            self._link.write(line, _SILENT)
        except (EOFError, TimeoutError):
            return  # it is noticed where its next word is awaited

    def _take_message(self, message: Mapping[str, Any]) -> None:
        self._heard = time.monotonic()
        if "farm" in message:
            self._update_workers(message["farm"])
        elif "lost" in message:
            self._begin_again(format_value(message["lost"], 300))
        elif "answer" in message and message["answer"] in self._open:
            self._take_answer(message["answer"], message)

    def _take_answer(self, number: int, message: Mapping[str, Any]) -> None:
        """Take the answer to an order, or have another worker do it where that is rejected."""
        if "text" not in message:
            self._finish_order(number, str(message["error"]))
            return
        worker = str(message["by"])
        try:
            answer = self._read_answer(number, message["text"], worker)
        except ValueError as error:
            self._reject_worker(worker, str(error))
            self._failed[number] = int(message["failed"]) + 1
            if self._failed[number] < _ATTEMPTS:
                self._submit_order(number)
            else:
                self._finish_order(number, str(error))
        else:
            self._finish_order(number, replace(answer, by=worker))

    def _read_answer(self, number: int, text: object, worker: str) -> WorkAnswer:
        """Read an answer. Raises ValueError for one that is rejected."""
        if worker in self._rejected:
            raise ValueError("it was answered by a worker whose answers are rejected")
        try:
            answer = WorkAnswer.read(text, len(self._open[number][0].candidates))
        except ValueError as error:
            raise ValueError(f"its answer makes no sense: {error}") from None
        if answer.lost is not None:
            raise ValueError(answer.lost)
        if self._device not in {None, answer.device}:
            raise ValueError("it is another machine than its label says")
        return answer

    def _finish_order(self, number: int, answer: WorkAnswer | str) -> None:
        del self._open[number]
        self._failed.pop(number, None)
        self._done[number] = answer
        if number in self._told:
            self._told.pop(number)(answer)

    def _reject_worker(self, worker: str, why: str) -> None:
        """Give a worker no more orders of this run."""
        if worker not in self._rejected:
            self._rejected.add(worker)
            self._send_message({"do": "reject", "worker": worker})
            self._warn(
                f"worker {format_value(worker)} gets no more trials: {format_value(why, 300)}"
            )
            self._note_absence()

    def _update_workers(self, found: Mapping[str, Any]) -> None:
        names = ("name", "label", "facts", "slots", "orders")
        self.workers = tuple(FarmWorker(*(one[name] for name in names)) for one in found["workers"])
        self.refused = list(map(str, found["refused"]))
        self._note_absence()

    def _note_absence(self) -> None:
        self._alone_since = None if self.own else (self._alone_since or time.monotonic())

    def _check_alone(self) -> None:
        """Raise StageError if there was no worker for too long."""
        since, patience = self._alone_since, self._reach.wait_timeout
        if since is not None and time.monotonic() - since >= patience:
            raise StageError(
                f"{describe_absence(self)} for {patience:g} s; what was measured is kept: run it "
                "again"
            )


def describe_absence(farm: Farm) -> str:
    """Say that nobody of a label is there, and who is."""
    labels = sorted({worker.label for worker in farm.workers})
    others = (
        f"there are workers of {', '.join(map(format_value, labels))}"
        if labels
        else "nor any other"
    )
    refused = f"; refused: {format_value(farm.refused[-1], 300)}" if farm.refused else ""
    return f"there is no worker of label {farm.label} ({others}{refused})"


def find_common_worker(farm: Farm, versions: Mapping[str, str]) -> FarmWorker:
    """Return a worker that stands for all of the label.

    Raises SetupError where they are not all equal, or have other versions than this machine.
    """
    first, *others = farm.own
    for other in others:
        differs = list_machine_differences(first.facts, other.facts)
        if differs:
            raise SetupError(
                f"label {farm.label} is of two kinds of machines, {format_value(first.name)} and"
                f" {format_value(other.name)}: {'; '.join(differs)}"
            )
    differs = describe_differences(versions, first.facts["versions"])
    if differs:
        raise SetupError(
            f"workers of label {farm.label} do not fit this machine: {'; '.join(differs)}"
        )
    return first
