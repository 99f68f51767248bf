"""A run's view of a farm: connected workers, submitted orders, and their answers."""

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
"""The module of the process that connects to the scheduler."""

_START: Final = 30.0
"""Seconds that starting the agent may take, besides connecting."""

SILENCE: Final = 15.0
"""Seconds in which a scheduler has to answer a ping."""

_SILENT: Final = 30.0
"""Seconds without a message after which the agent is ended; it is pinged meanwhile."""

_ATTEMPTS: Final = 3
"""Number of rejected answers after which an order fails."""

_GRACE: Final = 5.0

_PAUSE: Final = 1.0
"""Seconds between two attempts to reconnect to the scheduler."""


@dataclass(frozen=True, slots=True)
class FarmWorker:
    """A connected worker."""

    name: str
    label: str
    facts: Mapping[str, Any]
    slots: int
    """Maximum number of its concurrent orders."""
    orders: int
    """Number of its present orders, of all runs."""


class Farm:
    """The workers of one label. Every method raises SetupError or StageError."""

    def __init__(
        self, reach: Reach, label: str, warn: Callable[[str], None] = lambda _: None
    ) -> None:
        """Connect to the scheduler; `warn` is called with later problems."""
        self._reach = reach
        self.label = label
        self._warn = warn
        self._next = 0
        self._open: dict[int, tuple[WorkOrder, float]] = {}
        self._done: dict[int, WorkAnswer | str] = {}
        self._callbacks: dict[int, Callable[[WorkAnswer | str], None]] = {}
        self._failed: dict[int, int] = {}
        self._device: str | None = None
        self._process: subprocess.Popen[bytes]
        self._link: Link
        self._alone_since: float | None = None
        self._rejected: set[str] = set()
        self.workers: tuple[FarmWorker, ...] = ()
        """All workers, of any label."""
        self.refused: Sequence[str] = ()
        """Reasons for which workers were refused."""
        self._start_agent()

    @property
    def own(self) -> list[FarmWorker]:
        """Return the workers of this label whose answers are not rejected."""
        labelled_workers = (worker for worker in self.workers if worker.label == self.label)
        return [worker for worker in labelled_workers if worker.name not in self._rejected]

    @property
    def width(self) -> int:
        """Return the number of concurrent orders of the workers of this label."""
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
        """Submit an order, during which a worker may be silent for so many seconds.

        `tell` is called with the answer as soon as it arrives.
        """
        self._next += 1
        if tell is not None:
            self._callbacks[self._next] = tell
        self._open[self._next] = order, seconds
        self._submit_order(self._next)
        return self._next

    def cancel(self, numbers: Iterable[int]) -> None:
        """Cancel orders."""
        open_numbers = [number for number in numbers if self._open.pop(number, None)]
        for number in open_numbers:
            self._done.pop(number, None)
            self._callbacks.pop(number, None)
            self._failed.pop(number, None)
        if open_numbers:
            self._send_message({"do": "cancel", "numbers": open_numbers})

    def answered(self, numbers: Iterable[int]) -> dict[int, WorkAnswer | str]:
        """Wait until at least one of these orders is done; a text is the reason of a failure.

        Raises StageError if the connection is lost, or there is no worker for too long.
        """
        awaited_numbers = set(numbers)
        while not (answered_numbers := awaited_numbers & self._done.keys()):
            self.pump(_PAUSE)
            self._check_alone()
        return {number: self._done.pop(number) for number in sorted(answered_numbers)}

    def pump(self, seconds: float) -> None:
        """Wait up to `seconds` for a message of the agent, and process it."""
        try:
            self._take_message(json.loads(self._link.receive(seconds)))
        except TimeoutError:
            if time.monotonic() - self._heard >= _SILENT:
                self._begin_again("the process that connects to it does not answer")
            self._send_message({"do": "pulse"})
        except EOFError:
            self._begin_again("the process that connects to it ended")

    def close(self) -> None:
        """End the agent; open orders are cancelled."""
        self._link.close()
        end_process(self._process, patience=_GRACE)

    def _start_agent(self) -> None:
        reach = self._reach
        self._process, self._link = program(AGENT, subprocess.DEVNULL, variables={})
        try:
            self._send_message({
                "scheduler": reach.scheduler, "certificates": reach.certificates,
                "label": self.label, "connect": reach.connect_timeout, "silence": SILENCE,
            })  # fmt: skip
            seconds = reach.connect_timeout + _START
            farm_description, failure_report = failure.decode_answer(self._link.receive(seconds))
        except (EOFError, TimeoutError):
            self.close()
            raise SetupError(
                f"{reach.scheduler}: the process that connects to it gives no answer; {INSTALL}"
            ) from None
        if failure_report is not None:
            self.close()
            raise failure_report.error()
        self._heard = time.monotonic()
        self._update_workers(farm_description)

    def _begin_again(self, why: str) -> None:
        """Reconnect to the scheduler, and submit open orders again. Raises StageError."""
        self._warn(f"{self._reach.scheduler} is lost: {why}; looking for it")
        until = time.monotonic() + self._reach.wait_timeout
        self.close()
        while True:
            try:
                self._start_agent()
            except AutopipeError as error:
                if time.monotonic() >= until:
                    reason = f"the farm is lost: {error}; what was measured is kept: run it again"
                    raise StageError(reason) from error
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
            return  # noticed at the next receive

    def _take_message(self, message: Mapping[str, Any]) -> None:
        self._heard = time.monotonic()
        if "farm" in message:
            self._update_workers(message["farm"])
        elif "lost" in message:
            self._begin_again(format_value(message["lost"], 300))
        elif "answer" in message and message["answer"] in self._open:
            self._take_answer(message["answer"], message)

    def _take_answer(self, number: int, message: Mapping[str, Any]) -> None:
        """Accept the answer to an order, or reject it and submit the order again."""
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
        """Parse and validate an answer. Raises ValueError for one that is rejected."""
        if worker in self._rejected:
            raise ValueError("it was answered by a worker whose answers are rejected")
        try:
            answer = WorkAnswer.read(text, len(self._open[number][0].candidates))
        except ValueError as error:
            raise ValueError(f"its answer makes no sense: {error}") from None
        if answer.lost is not None:
            raise ValueError(answer.lost)
        if self._device not in {None, answer.device}:
            raise ValueError("its device is not that of its label")
        return answer

    def _finish_order(self, number: int, answer: WorkAnswer | str) -> None:
        del self._open[number]
        self._failed.pop(number, None)
        self._done[number] = answer
        if number in self._callbacks:
            self._callbacks.pop(number)(answer)

    def _reject_worker(self, worker: str, why: str) -> None:
        """Submit no more orders of this run to a worker."""
        if worker not in self._rejected:
            self._rejected.add(worker)
            self._send_message({"do": "reject", "worker": worker})
            self._warn(
                f"worker {format_value(worker)} gets no more trials: {format_value(why, 300)}"
            )
            self._note_absence()

    def _update_workers(self, description: Mapping[str, Any]) -> None:
        names = ("name", "label", "facts", "slots", "orders")
        self.workers = tuple(
            FarmWorker(*(one[name] for name in names)) for one in description["workers"]
        )
        self.refused = list(map(str, description["refused"]))
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
    """Describe that a label has no worker, and list the other labels."""
    labels = sorted({worker.label for worker in farm.workers})
    labels_part = (
        f"there are workers of {', '.join(map(format_value, labels))}"
        if labels
        else "nor any other"
    )
    refusal_part = f"; refused: {format_value(farm.refused[-1], 300)}" if farm.refused else ""
    return f"there is no worker of label {farm.label} ({labels_part}{refusal_part})"


def find_common_worker(farm: Farm, versions: Mapping[str, str]) -> FarmWorker:
    """Return a worker that represents all workers of the label.

    Raises SetupError if they are not all equal, or have other versions than this machine.
    """
    first, *workers = farm.own
    for worker in workers:
        differs = list_machine_differences(first.facts, worker.facts)
        if differs:
            raise SetupError(
                f"label {farm.label} is of two kinds of machines, {format_value(first.name)} and"
                f" {format_value(worker.name)}: {'; '.join(differs)}"
            )
    differs = describe_differences(versions, first.facts["versions"])
    if differs:
        raise SetupError(
            f"workers of label {farm.label} do not fit this machine: {'; '.join(differs)}"
        )
    return first
