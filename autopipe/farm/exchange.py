"""The state of a scheduler: the workers of each label, the orders of each run, the assignments.

It has no network code. Messages to a peer go through its `tell`; methods are called for incoming
messages.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from autopipe.config.problem import format_value
from autopipe.farm.facts import list_machine_differences
from autopipe.farm.wire import WorkAnswer

MOST: Final = 3
"""Number of workers that may fail during an order before the order fails."""

PATIENCE: Final = 60.0
"""Seconds added to twice an order's time limit before a silent worker is overdue."""

_REFUSALS: Final = 20
"""Number of refusals that are kept."""

Tell = Callable[[Mapping[str, Any]], None]


@dataclass(eq=False, slots=True)
class SharedOrder:
    """An order of one run, or of several runs with equal orders at the same time."""

    text: str
    seconds: float
    key: tuple[str, str]
    """The label, and the digest of the order."""
    failed: int
    """Number of workers that failed during it."""
    owners: "list[tuple[ConnectedRun, int]]" = field(default_factory=list)
    """Runs that wait for it, each with its number there."""
    is_waiting: bool = True


@dataclass(eq=False, slots=True)
class ConnectedRun:
    """A connected run."""

    label: str
    tell: Tell
    queue: "deque[SharedOrder]" = field(default_factory=deque)
    open: dict[int, SharedOrder] = field(default_factory=dict)
    """Orders that it waits for, by its number."""
    rejected: set[str] = field(default_factory=set)
    """Names of workers whose answers this run rejects."""

    def take(self) -> SharedOrder | None:
        """Take the next order of this run that waits and is not cancelled."""
        while self.queue:
            order = self.queue.popleft()
            if order.is_waiting and any(run is self for run, _ in order.owners):
                return order
        return None


@dataclass(eq=False, slots=True)
class ConnectedWorker:
    """A connected worker."""

    name: str
    label: str
    facts: Mapping[str, Any]
    slots: int
    """Maximum number of its concurrent orders."""
    tell: Tell
    hands: dict[int, SharedOrder] = field(default_factory=dict)
    heard: float = 0.0
    """Time of its last answer, or of its first order after being idle."""

    def describe(self) -> dict[str, Any]:
        """Describe it as JSON."""
        return {
            "name": self.name, "label": self.label, "facts": dict(self.facts), "slots": self.slots,
            "orders": len(self.hands),
        }  # fmt: skip

    @property
    def is_overdue(self) -> bool:
        """Whether it has orders, and its last answer is too long ago."""
        seconds = max((order.seconds for order in self.hands.values()), default=float("inf"))
        return monotonic() - self.heard > 2 * seconds + PATIENCE


@dataclass(slots=True)
class Exchange:
    """Assigns the orders of runs to workers, round robin over the runs."""

    workers: dict[str, ConnectedWorker] = field(default_factory=dict)
    """By name."""
    runs: "deque[ConnectedRun]" = field(default_factory=deque)
    """The next run to get a worker comes first."""
    _shared: dict[tuple[str, str], SharedOrder] = field(default_factory=dict)
    _refusals: "deque[str]" = field(default_factory=lambda: deque(maxlen=_REFUSALS))
    _next: int = 0

    def describe(self) -> dict[str, Any]:
        """Describe the connected workers and the refusals as JSON."""
        workers = [worker.describe() for _, worker in sorted(self.workers.items())]
        return {"workers": workers, "refused": list(self._refusals)}

    def find_refusal(self, worker: ConnectedWorker) -> str | None:
        """Return why a worker is refused, else None: all workers of a label have to be equal."""
        most = 2 * int(worker.facts["device"]["cores"])
        if not 0 < worker.slots <= most:
            return f"it takes {worker.slots} orders at a time, of {most} at most"
        for member in self.workers.values():
            if member.label == worker.label and (
                differs := list_machine_differences(member.facts, worker.facts)
            ):
                reason = (
                    f"label {worker.label} is taken by machines of another kind, such as"
                    f" {format_value(member.name)}: here is {'; '.join(differs)}"
                )
                self._refusals.append(f"{format_value(worker.name)}: {reason}")
                self._announce_workers()
                return reason
        return None

    def admit(self, worker: ConnectedWorker) -> None:
        """Add a worker."""
        self.workers[worker.name] = worker
        self._announce_workers()
        self.hand_out()

    def dismiss(self, worker: ConnectedWorker, why: str | None = None) -> None:
        """Remove a worker; `why` is the reason for a peer that broke the protocol.

        Without a reason the worker died, and its orders are reassigned.
        """
        del self.workers[worker.name]
        hands, worker.hands = worker.hands, {}
        for order in hands.values():
            if why is not None:
                self._send_answer(order, worker, WorkAnswer("", lost=why).text())
            elif order.owners:
                self._retry_or_fail(order, "its worker died")
            else:
                self._forget_order(order)
        self._announce_workers()
        self.hand_out()

    def enter(self, run: ConnectedRun) -> None:
        """Add a run."""
        self.runs.append(run)

    def depart(self, run: ConnectedRun) -> None:
        """Remove a run, and cancel its orders."""
        self.runs.remove(run)
        self.cancel(run, list(run.open))

    def submit(self, run: ConnectedRun, number: int, order: SharedOrder) -> None:
        """Queue an order of a run; one that has failed comes first, and is not shared.

        Raises ValueError for a number that the run already waits for.
        """
        if number in run.open:
            raise ValueError(f"order {number} was submitted twice")
        if order.failed:
            run.queue.appendleft(order)
        else:
            order = self._shared.setdefault(order.key, order)
            run.queue.append(order)
        order.owners.append((run, number))
        run.open[number] = order
        self.hand_out()

    def cancel(self, run: ConnectedRun, numbers: Iterable[int]) -> None:
        """Cancel orders of a run; an order without runs that has not begun is deleted."""
        for number in numbers:
            order = run.open.pop(number, None)
            if order is not None:
                order.owners.remove((run, number))
                if order.is_waiting and not order.owners:
                    self._forget_order(order)

    def reject(self, run: ConnectedRun, name: str) -> None:
        """Assign no more orders of a run to a worker."""
        run.rejected.add(name)

    def answer(self, worker: ConnectedWorker, number: int, text: str) -> None:
        """Pass an answer to the runs that wait for it. Raises LookupError for an unknown order."""
        order = worker.hands.pop(number)
        worker.heard = monotonic()
        self._send_answer(order, worker, text)
        self.hand_out()

    def hand_out(self) -> None:
        """Assign orders to workers with a free slot: by the lowest load, then the longest idle."""
        free = [worker for worker in self.workers.values() if len(worker.hands) < worker.slots]
        while free:
            worker = min(free, key=lambda one: (len(one.hands) / one.slots, one.heard))
            order = self._take_next_order(worker)
            if order is None:
                free.remove(worker)
                continue
            self._next += 1
            order.is_waiting = False
            if not worker.hands:
                worker.heard = monotonic()
            worker.hands[self._next] = order
            worker.tell({"order": self._next, "text": order.text, "seconds": order.seconds})
            if len(worker.hands) == worker.slots:
                free.remove(worker)

    def _take_next_order(self, worker: ConnectedWorker) -> SharedOrder | None:
        """Take the next order for a worker, round robin over the runs."""
        for _ in range(len(self.runs)):
            run = self.runs[0]
            self.runs.rotate(-1)
            if run.label == worker.label and worker.name not in run.rejected:
                order = run.take()
                if order is not None:
                    return order
        return None

    def _send_answer(self, order: SharedOrder, worker: ConnectedWorker, text: str) -> None:
        for run, number in self._close_order(order):
            run.tell({"answer": number, "text": text, "by": worker.name, "failed": order.failed})

    def _retry_or_fail(self, order: SharedOrder, why: str) -> None:
        """Queue an order again, unless too many workers have failed during it."""
        order.failed += 1
        order.is_waiting = order.failed < MOST
        if order.is_waiting:
            for run in {id(run): run for run, _ in order.owners}.values():
                run.queue.appendleft(order)
            return
        for run, number in self._close_order(order):
            run.tell({"answer": number, "error": why})

    def _close_order(self, order: SharedOrder) -> "list[tuple[ConnectedRun, int]]":
        """Delete a completed order; return the runs that waited for it."""
        self._forget_order(order)
        for run, number in order.owners:
            del run.open[number]
        return order.owners

    def _forget_order(self, order: SharedOrder) -> None:
        if self._shared.get(order.key) is order:
            del self._shared[order.key]

    def _announce_workers(self) -> None:
        """Send all runs the description of the farm."""
        description = self.describe()
        for run in self.runs:
            run.tell({"farm": description})
