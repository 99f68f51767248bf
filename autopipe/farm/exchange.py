"""What a scheduler knows: the workers of each label, the orders of each run, and who has which.

Nothing here speaks to a network. A peer is told something by its `tell`; methods are called as its
messages come.
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
"""Workers that may fail with an order in their hands before that is the order's failure."""

PATIENCE: Final = 60.0
"""Seconds beyond twice the silence that an order allows in which a worker has to answer any."""

_REFUSALS: Final = 20
"""Refusals that are remembered."""

Tell = Callable[[Mapping[str, Any]], None]


@dataclass(eq=False, slots=True)
class SharedOrder:
    """An order, for one run or for several that asked for the same at the same time."""

    text: str
    seconds: float
    key: tuple[str, str]
    """The label, and what equal orders have in common."""
    failed: int
    """Workers that have failed with it."""
    owners: "list[tuple[ConnectedRun, int]]" = field(default_factory=list)
    """Runs that wait for it, each with its number there."""
    is_waiting: bool = True


@dataclass(eq=False, slots=True)
class ConnectedRun:
    """A run that is connected."""

    label: str
    tell: Tell
    queue: "deque[SharedOrder]" = field(default_factory=deque)
    open: dict[int, SharedOrder] = field(default_factory=dict)
    """Orders that it waits for, by its number."""
    rejected: set[str] = field(default_factory=set)
    """Names of workers whose answers this run rejects."""

    def take(self) -> SharedOrder | None:
        """Take the next order that still waits and is still wanted by this run."""
        while self.queue:
            order = self.queue.popleft()
            if order.is_waiting and any(run is self for run, _ in order.owners):
                return order
        return None


@dataclass(eq=False, slots=True)
class ConnectedWorker:
    """A worker that is connected."""

    name: str
    label: str
    facts: Mapping[str, Any]
    slots: int
    """Orders that it takes at a time."""
    tell: Tell
    hands: dict[int, SharedOrder] = field(default_factory=dict)
    heard: float = 0.0
    """When it last answered, or took an order with empty hands."""

    def describe(self) -> dict[str, Any]:
        """Describe it as JSON."""
        return {
            "name": self.name, "label": self.label, "facts": dict(self.facts), "slots": self.slots,
            "orders": len(self.hands),
        }  # fmt: skip

    @property
    def is_overdue(self) -> bool:
        """Whether it has orders, and answered none for longer than any of them may take."""
        seconds = max((order.seconds for order in self.hands.values()), default=float("inf"))
        return monotonic() - self.heard > 2 * seconds + PATIENCE


@dataclass(slots=True)
class Exchange:
    """Hands the orders of runs to workers, run by run in turn."""

    workers: dict[str, ConnectedWorker] = field(default_factory=dict)
    """By name."""
    runs: "deque[ConnectedRun]" = field(default_factory=deque)
    """The next one to get a worker comes first."""
    _shared: dict[tuple[str, str], SharedOrder] = field(default_factory=dict)
    _refusals: "deque[str]" = field(default_factory=lambda: deque(maxlen=_REFUSALS))
    _next: int = 0

    def describe(self) -> dict[str, Any]:
        """Describe who is there as JSON, and who was refused."""
        workers = [worker.describe() for _, worker in sorted(self.workers.items())]
        return {"workers": workers, "refused": list(self._refusals)}

    def find_refusal(self, worker: ConnectedWorker) -> str | None:
        """Return why a worker is not let in: all workers of a label have to be equal."""
        most = 2 * int(worker.facts["device"]["cores"])
        if not 0 < worker.slots <= most:
            return f"it takes {worker.slots} orders at a time, of {most} at most"
        for other in self.workers.values():
            if other.label == worker.label and (
                differs := list_machine_differences(other.facts, worker.facts)
            ):
                reason = (
                    f"label {worker.label} is taken by machines of another kind, such as"
                    f" {format_value(other.name)}: here is {'; '.join(differs)}"
                )
                self._refusals.append(f"{format_value(worker.name)}: {reason}")
                self._announce_workers()
                return reason
        return None

    def admit(self, worker: ConnectedWorker) -> None:
        """Let a worker in."""
        self.workers[worker.name] = worker
        self._announce_workers()
        self.hand_out()

    def dismiss(self, worker: ConnectedWorker, why: str | None = None) -> None:
        """Take a worker out; `why` it gives no answers, for a peer that broke the protocol.

        Without it the worker died, and its orders are given to others.
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
        """Take a run in."""
        self.runs.append(run)

    def depart(self, run: ConnectedRun) -> None:
        """Give up what a run has ordered."""
        self.runs.remove(run)
        self.cancel(run, list(run.open))

    def submit(self, run: ConnectedRun, number: int, order: SharedOrder) -> None:
        """Queue an order of a run; one that has failed comes first, and is done for it alone.

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
        """Give up orders of a run; one that is not begun and that no run wants is forgotten."""
        for number in numbers:
            order = run.open.pop(number, None)
            if order is not None:
                order.owners.remove((run, number))
                if order.is_waiting and not order.owners:
                    self._forget_order(order)

    def reject(self, run: ConnectedRun, name: str) -> None:
        """Give a worker no more orders of a run."""
        run.rejected.add(name)

    def answer(self, worker: ConnectedWorker, number: int, text: str) -> None:
        """Pass an answer on to whoever waits for it. Raises LookupError for one to no order."""
        order = worker.hands.pop(number)
        worker.heard = monotonic()
        self._send_answer(order, worker, text)
        self.hand_out()

    def hand_out(self) -> None:
        """Hand orders to workers that have a free slot, those that do least for longest first."""
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
        """Take the next order that a worker may have, of the run whose turn it is."""
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
        """Give an order to another worker, unless too many have failed with it."""
        order.failed += 1
        order.is_waiting = order.failed < MOST
        if order.is_waiting:
            for run in {id(run): run for run, _ in order.owners}.values():
                run.queue.appendleft(order)
            return
        for run, number in self._close_order(order):
            run.tell({"answer": number, "error": why})

    def _close_order(self, order: SharedOrder) -> "list[tuple[ConnectedRun, int]]":
        """Forget an order that is done; return the runs that waited for it."""
        self._forget_order(order)
        for run, number in order.owners:
            del run.open[number]
        return order.owners

    def _forget_order(self, order: SharedOrder) -> None:
        if self._shared.get(order.key) is order:
            del self._shared[order.key]

    def _announce_workers(self) -> None:
        """Tell all runs who is there."""
        known = self.describe()
        for run in self.runs:
            run.tell({"farm": known})
