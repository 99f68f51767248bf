"""The process that speaks to a scheduler for one run: Dask's client and its threads live here.

Lines of JSON go in: `submit` an order with a number, `cancel` numbers, `expect` answers of a
device, `shun` a worker. Lines come out: an `answer` with its number, `farm` who is there, `shunned`
for a worker that is not believed any more, or `lost` if the scheduler is.
"""

import asyncio
import json
import math
import os
import secrets
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from autopipe.errors import AutopipeError, SetupError
from autopipe.farm import trial
from autopipe.farm.bounds import ANSWER
from autopipe.farm.certificates import refusal
from autopipe.farm.settings import speaking
from autopipe.farm.wire import WorkAnswer
from autopipe.processes import failure
from autopipe.processes.link import Link
from autopipe.processes.start import begin

MOST: Final = 3
"""Workers that may fail with an order in their hands before that is the order's failure."""

_LOOK: Final = 1.0
"""Seconds between two looks at who is there."""

_RAISED: Final = "it raises an error where it should answer"

_AHEAD: Final = 2
"""Orders beyond its share of the workers that a run has at the scheduler."""


@dataclass(slots=True)
class _Handed:
    """An order, and what became of it so far."""

    number: int
    order: str
    seconds: float
    count: int
    """Candidates that it is about."""
    identity: str
    """What it has in common with the same order of another run."""
    failed: int = 0
    """Workers that have failed with it."""

    @property
    def key(self) -> str:
        """Dask's name for it: what has one name is done once, for all who ask for it meanwhile."""
        return f"trial-{self.identity}-{self.failed}"


@dataclass(slots=True)
class Agent:
    """Speaks to one scheduler."""

    link: Link
    start: Mapping[str, Any]
    name: str = field(default_factory=lambda: secrets.token_hex(8))
    waiting: "deque[_Handed]" = field(default_factory=deque)
    running: "dict[int, tuple[asyncio.Task[None], _Handed]]" = field(default_factory=dict)
    window: int = 1
    shunned: set[str] = field(default_factory=set)
    """Names of workers whose answers are not believed any more."""
    addresses: dict[str, str] = field(default_factory=dict)
    """Where the workers of the label are, by their names."""
    device: str | None = None
    """The fingerprint that answers have to have; null for any."""
    client: Any = None

    async def serve(self) -> None:
        """Do what is asked for until nobody asks any more."""
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        try:
            self.client = await self._connected()
            found = await self._look()
        except (OSError, TimeoutError, AutopipeError) as error:
            told = error if isinstance(error, AutopipeError) else self._absent(error)
            self.link.write(failure.complaint(failure.refused(told)))
            return
        self.link.write(failure.answer(found))
        loop.add_reader(self.link.fileno(), self._heard, over)
        looking = asyncio.create_task(self._looking(over))
        await over.wait()
        looking.cancel()
        with suppress(Exception):
            await asyncio.wait_for(self.client.close(), 2)

    def _absent(self, error: Exception) -> SetupError:
        address, certificates = self.start["scheduler"], self.start["certificates"]
        if told := refusal(error, address, certificates):
            return SetupError(f"tuning.measure.scheduler: {told}")
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        return SetupError(
            f"tuning.measure.scheduler: {self.start['scheduler']} does not answer within"
            f" {self.start['connect']:g} s: {reason}"
        )

    async def _connected(self) -> Any:  # noqa: ANN401 -- distributed has no types
        speaks = speaking(self.start["scheduler"], self.start["certificates"])
        from autopipe.farm.client import FarmClient

        seconds = self.start["connect"]
        client = FarmClient(
            self.start["scheduler"], asynchronous=True, set_as_default=False, timeout=seconds,
            name="autopipe", **speaks,
        )  # fmt: skip
        return await asyncio.wait_for(client, seconds + 1)

    def _heard(self, over: asyncio.Event) -> None:
        try:
            for line in self.link.received():
                self._take(json.loads(line))
        except EOFError:
            over.set()

    def _take(self, message: Mapping[str, Any]) -> None:
        match message["do"]:
            case "submit":
                names = ("number", "order", "seconds", "count", "identity")
                self.waiting.append(_Handed(**{name: message[name] for name in names}))
            case "cancel":
                gone = set(message["numbers"])
                self.waiting = deque(one for one in self.waiting if one.number not in gone)
                for number in gone & self.running.keys():
                    self.running.pop(number)[0].cancel()
            case "expect":
                self.device = message["device"]
            case "shun":
                self.shunned.add(message["worker"])
        self._fill()

    def _fill(self) -> None:
        """Hand on as many orders as this run has a share of the workers for."""
        while self.waiting and len(self.running) < self.window and self._trusted() != []:
            handed = self.waiting.popleft()
            task = asyncio.create_task(self._follow(handed))
            self.running[handed.number] = task, handed

    async def _follow(self, handed: _Handed) -> None:
        """Have one order done somewhere, and tell what came of it."""
        from distributed.client import FutureCancelledError

        future = None
        try:
            future = self.client.submit(
                trial.do, handed.order, handed.seconds, key=handed.key,
                pure=False, resources={self.start["label"]: 1}, workers=self._trusted(),
            )  # fmt: skip
            text = await future
            by = self.client.doers.pop(future.key, None)
            wrong = self._wrong(text, handed.count)
            if by is None or by in self.shunned:
                self._again(handed, "it was answered by a worker that is not believed")
            elif wrong is None:
                self._tell({"answer": handed.number, "text": text, "by": by})
            else:
                await self._shun(future.key, wrong)
                self._again(handed, wrong)
        except FutureCancelledError:  # the scheduler was gone, and Dask has found it again
            self.waiting.appendleft(handed)
        except asyncio.CancelledError:
            if future is not None:
                future.release()
            raise
        except Exception:  # noqa: BLE001 -- whatever Dask, or a worker, raises
            there = future is not None and await self._shun(future.key, _RAISED)
            self._again(handed, _RAISED if there else "its worker died")
        finally:
            self.running.pop(handed.number, None)
            if future is not None:
                future.release()
        self._fill()

    def _wrong(self, text: object, count: int) -> str | None:
        """Return why an answer is not believed, if it is not."""
        try:
            if isinstance(text, str) and len(text) > ANSWER:
                raise ValueError(f"it has {len(text)} characters")  # noqa: TRY301 -- told below
            answer = WorkAnswer.read(text, count)
        except ValueError as error:
            return f"its answer makes no sense: {error}"
        if answer.lost is not None:
            return answer.lost
        if self.device not in {None, answer.device}:
            return "it is another machine than its label says"
        return None

    def _again(self, handed: _Handed, why: str) -> None:
        """Have an order done by another worker, unless too many have failed with it."""
        handed.failed += 1
        if handed.failed < MOST:
            self.waiting.appendleft(handed)
        else:
            self._tell({"answer": handed.number, "failed": why})

    async def _shun(self, key: str, why: str) -> bool:
        """Give nothing more to the worker that has done this, and tell whether it is there."""
        doers: list[str] = []
        with suppress(OSError):  # the scheduler is gone, which is noticed soon
            doers = await self.client.scheduler.autopipe_doers(key=key)
        names = {place: name for name, place in self.addresses.items()}
        for place in doers:
            name = names.get(place, place)
            if name not in self.shunned:
                self.shunned.add(name)
                self._tell({"shunned": name, "why": why})
        return bool(doers)

    def _trusted(self) -> list[str] | None:
        """Return the addresses of those who may have an order; None for all."""
        if not self.shunned:
            return None
        return [place for name, place in self.addresses.items() if name not in self.shunned]

    async def _looking(self, over: asyncio.Event) -> None:
        while not over.is_set():
            try:
                if self.client._handle_report_task.done():  # noqa: SLF001 -- nothing else says so
                    raise SetupError("what it said last can not be read")
                self._tell({"farm": await self._look()})
            except (OSError, TimeoutError, AutopipeError) as error:
                self._tell({"lost": " ".join(str(error).split())[:300] or "no answer"})
                over.set()
                return
            await asyncio.sleep(_LOOK)

    async def _look(self) -> dict[str, Any]:
        """Return who is there, and take the share of the workers that this run has."""
        wanted = len(self.waiting) + len(self.running)
        asked = self.client.scheduler.autopipe_look(
            run=self.name, label=self.start["label"], wanted=wanted
        )
        try:
            found: dict[str, Any] = await asyncio.wait_for(asked, self.start["silence"])
        except AttributeError as error:
            told = f"{self.start['scheduler']} is no `autopipe scheduler`: {error}"
            raise SetupError(told) from error
        own = [one for one in found["workers"] if one["label"] == self.start["label"]]
        self.addresses = {one["name"]: one["address"] for one in own}
        slots = sum(one["slots"] for one in own if one["name"] not in self.shunned)
        share = math.ceil(slots / max(1, found["sharing"]))
        self.window = share + _AHEAD if slots else 0
        self._fill()
        return found

    def _tell(self, message: Mapping[str, Any]) -> None:
        with suppress(EOFError):
            self.link.send(message)


def main() -> None:
    """Serve the run that has started this program."""
    link = begin()
    start = json.loads(link.receive())
    asyncio.run(Agent(link, start).serve())
    os._exit(0)  # threads of Dask's may take their time


if __name__ == "__main__":
    main()
