"""The scheduler of a farm: Dask's, which also knows what its workers are and who wants them."""

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic, time
from typing import Any, Final, NamedTuple

from autopipe.config.problem import shown
from autopipe.errors import SetupError
from autopipe.farm.bounds import gatherer
from autopipe.farm.facts import differences
from autopipe.farm.settings import speaking

_RECENT: Final = 10.0
"""Seconds after which a run that has said nothing wants no workers any more."""

_SHUFFLE: Final = "shuffle"
"""The part of Dask's scheduler that sends each worker an object of a class of its own."""

_CLAIMS: Final = ("add-keys", "update-data")
"""What a worker or a run says where it has the answer to a trial that it was not given."""

_REFUSED: Final = 20
"""Refusals that are remembered."""


@dataclass(frozen=True, slots=True)
class Attending:
    """A worker that was let in."""

    label: str
    facts: Mapping[str, Any]
    slots: int
    """Orders that it takes at a time."""

    def told(self, name: str, place: "Present") -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "name": name, "label": self.label, "facts": dict(self.facts), "slots": self.slots,
            "address": place.address, "orders": place.orders,
        }  # fmt: skip


class Present(NamedTuple):
    """A worker that is connected."""

    address: str
    orders: int
    """Orders that it has in its hands."""


class Roll:
    """Who is there, by the names that workers have at Dask's scheduler."""

    def __init__(self, present: Callable[[], Mapping[str, Present]]) -> None:
        """Take who says which workers are connected."""
        self._present = present
        self._let_in: dict[str, tuple[Attending, float]] = {}
        self._refused: deque[str] = deque(maxlen=_REFUSED)
        self._wanting: dict[str, tuple[str, float]] = {}

    def join(self, name: str, worker: Attending) -> str | None:
        """Let a worker in, or return why not: all of one label have to be equal."""
        most = 2 * int(worker.facts["device"]["cores"])
        if worker.slots > most:
            return f"it takes {worker.slots} orders at a time, of {most} at most"
        for other, (own, _) in self._current().items():
            differs = differences(own.facts, worker.facts) if own.label == worker.label else []
            if differs and other != name:
                reason = (
                    f"label {worker.label} is taken by machines of another kind, such as"
                    f" {shown(other)}: here is {'; '.join(differs)}"
                )
                self._refused.append(f"{shown(name)}: {reason}")
                return reason
        self._let_in[name] = worker, monotonic()
        return None

    def expects(self, name: object, resources: object) -> bool:
        """Tell whether somebody is let in who takes what its label has, and nothing else."""
        own, _ = self._current().get(str(name), (None, 0.0))
        return own is not None and resources == {own.label: own.slots}

    def look(self, run: str, label: str | None, wanted: int) -> dict[str, Any]:
        """Say who is there, and how many runs want workers of a label; `run` wants so many."""
        now = monotonic()
        if label is not None and wanted:
            self._wanting[run] = label, now
        else:
            self._wanting.pop(run, None)
        self._wanting = {
            name: (own, when) for name, (own, when) in self._wanting.items() if now - when < _RECENT
        }
        present = self._present()
        return {
            "workers": [
                own.told(name, present[name])
                for name, (own, _) in sorted(self._current().items())
                if name in present
            ],
            "sharing": sum(own == label for own, _ in self._wanting.values()),
            "refused": list(self._refused),
        }

    def _current(self) -> dict[str, tuple[Attending, float]]:
        """Return who is connected, or was let in just now."""
        present, now = self._present(), monotonic()
        self._let_in = {
            name: (own, when)
            for name, (own, when) in self._let_in.items()
            if name in present or now - when < _RECENT
        }
        return self._let_in


def serve(address: str, certificates: str | None, tell: Callable[[str], None]) -> None:
    """Schedule at this address until SIGTERM or Ctrl-C. Raises SetupError."""
    speaks = speaking(address, certificates)
    asyncio.run(_serve(address, speaks, tell))


async def _serve(address: str, speaks: Mapping[str, Any], tell: Callable[[str], None]) -> None:
    from distributed import Scheduler
    from distributed.scheduler import DEFAULT_EXTENSIONS

    needed = {name: each for name, each in DEFAULT_EXTENSIONS.items() if name != _SHUFFLE}
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    protocol, _, place = address.partition("://")
    host, _, port = place.rpartition(":")
    scheduler = Scheduler(
        host=host.strip("[]"), port=int(port), protocol=f"{protocol}://", dashboard=False,
        dashboard_address="127.0.0.1:0", extensions=needed, **speaks,
    )  # fmt: skip
    try:
        await scheduler
    except (OSError, RuntimeError) as error:  # Dask says what it was as the cause
        raise SetupError(f"{address} can not be listened at: {error.__cause__ or error}") from error
    async with scheduler:
        roll = Roll(partial(_present, scheduler))
        scheduler.handlers["register-worker"] = _registrar(scheduler, roll)
        scheduler.handlers["autopipe_join"] = _joiner(roll, tell)
        scheduler.handlers["autopipe_look"] = _looker(roll)
        scheduler.handlers["autopipe_doers"] = _blamer(scheduler)
        scheduler.handlers["gather"] = gatherer(scheduler)
        for claim in _CLAIMS:
            scheduler.stream_handlers[claim] = _unheard
        tell(f"scheduler at {scheduler.address}")
        await over.wait()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(scheduler.close(reason="asked to end"), 5)


def _present(scheduler: Any) -> dict[str, Present]:  # noqa: ANN401 -- distributed has no types
    states = scheduler.workers.values()
    return {str(one.name): Present(one.address, len(one.processing)) for one in states}


def _registrar(scheduler: Any, roll: Roll) -> Callable[..., Any]:  # noqa: ANN401 -- as above
    """Return what lets a worker in at Dask's scheduler: one that has joined, for its own label."""
    add = scheduler.handlers["register-worker"]

    async def register(comm: Any, **told: Any) -> Any:  # noqa: ANN401 -- distributed has no types
        if roll.expects(told.get("name"), told.get("resources")):
            return await add(comm, **told)
        await comm.write({"status": "error", "message": "it has not joined", "time": time()})
        return None

    return register


def _unheard(**_: object) -> None:
    """Do nothing: who was given a trial answers it, and nobody else."""


def _blamer(scheduler: Any) -> Callable[..., list[str]]:  # noqa: ANN401 -- distributed has no types
    def doers(key: str = "") -> list[str]:
        """Return where the workers are that have done a trial, or raised something instead."""
        if key not in scheduler.tasks:
            return []
        task = scheduler.tasks[key]
        raised = (place for place in task.erred_on or () if place in scheduler.workers)
        return [*(each.address for each in task.who_has or ()), *raised]

    return doers


def _joiner(roll: Roll, tell: Callable[[str], None]) -> Callable[..., str | None]:
    def join(
        name: str = "",
        label: str = "",
        facts: Any = None,  # noqa: ANN401 -- JSON
        slots: int = 1,
    ) -> str | None:
        reason = roll.join(name, Attending(label, facts, slots))
        tell(f"refused {name}: {reason}" if reason else f"{name} joined")
        return reason

    return join


def _looker(roll: Roll) -> Callable[..., dict[str, Any]]:
    def look(run: str = "", label: str | None = None, wanted: int = 0) -> dict[str, Any]:
        return roll.look(run, label, wanted)

    return look
