"""`autopipe worker`: joins a farm, and does what its scheduler sends."""

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from autopipe.config.tuning import on_loopback
from autopipe.errors import SetupError
from autopipe.farm import trial
from autopipe.farm.certificates import refusal
from autopipe.farm.settings import speaking
from autopipe.farm.workbench import Workbench
from autopipe.store.passing import passing_folder

_PAUSE: Final = 2.0
"""Seconds between two attempts to find the scheduler."""

_CLOSING: Final = 10.0
"""Seconds that leaving may take."""


@dataclass(frozen=True, slots=True)
class Joining:
    """How a worker joins."""

    scheduler: str
    label: str
    certificates: str | None = None
    patience: float = 600.0
    """Seconds for which it looks for a scheduler that is not there."""


def serve(joining: Joining, tell: Callable[[str], None]) -> None:
    """Work until SIGTERM or Ctrl-C.

    Raises SetupError where this worker is refused, or where there is no scheduler any more.
    """
    speaks = speaking(joining.scheduler, joining.certificates)
    bench = trial.bench = Workbench()
    try:
        asyncio.run(_Worker(joining, speaks, bench.facts, tell).serve())
    finally:
        bench.close()


class _Worker:
    """A worker of Dask, again and again."""

    def __init__(
        self,
        joining: Joining,
        speaks: Mapping[str, Any],
        facts: Mapping[str, Any],
        tell: Callable[[str], None],
    ) -> None:
        self._joining = joining
        self._speaks = speaks
        self._facts = facts
        self._tell = tell
        self._name = f"{joining.label}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        self._slots = 2 * int(facts["device"]["cores"])  # as many wait built as are being built
        self._over: asyncio.Event

    async def serve(self) -> None:
        self._over = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._over.set)
        gone, looking = monotonic(), False
        while not self._over.is_set():
            try:
                await self._join()
                looking = False
                await self._work()
                gone = monotonic()
            except (OSError, RuntimeError, TimeoutError) as error:
                where = self._joining.scheduler
                if told := refusal(error, where, self._joining.certificates):
                    raise SetupError(told) from error
                if monotonic() - gone >= self._joining.patience:
                    raise SetupError(f"{where}: there is no scheduler: {error}") from error
                if not looking:
                    self._tell(f"looking for a scheduler at {where}")
                looking = True
                await self._rest()

    async def _rest(self) -> None:
        try:
            await asyncio.wait_for(self._over.wait(), _PAUSE)
        except TimeoutError:
            return

    async def _join(self) -> None:
        """Ask to be let in. Raises SetupError where the scheduler refuses, and OSError."""
        from distributed.core import rpc

        arguments = {}
        if "security" in self._speaks:
            arguments["connection_args"] = self._speaks["security"].get_connection_args("worker")
        async with rpc(self._joining.scheduler, timeout=10, **arguments) as asked:
            try:
                reason = await asked.autopipe_join(
                    name=self._name, label=self._joining.label, facts=self._facts,
                    slots=self._slots,
                )  # fmt: skip
            except AttributeError as error:
                told = f"{self._joining.scheduler} is no `autopipe scheduler`: {error}"
                raise SetupError(told) from error
        if reason is not None:
            raise SetupError(f"{self._joining.scheduler} refuses this worker: {reason}")

    async def _work(self) -> None:
        """Be a worker of Dask until that is over."""
        from distributed import Worker

        protocol, _, place = self._joining.scheduler.partition("://")
        host = place.rpartition(":")[0]
        with passing_folder() as folder:
            async with Worker(
                self._joining.scheduler, nthreads=self._slots, name=self._name, memory_limit=0,
                resources={self._joining.label: self._slots}, protocol=protocol,
                host="127.0.0.1" if on_loopback(host) else None, dashboard=False,
                dashboard_address="127.0.0.1:0", death_timeout=30, local_directory=str(folder),
                **self._speaks,
            ) as worker:  # fmt: skip
                await self._until_over(worker)

    async def _until_over(self, worker: Any) -> None:  # noqa: ANN401 -- distributed has no types
        self._tell(f"{self._name} works for {self._joining.scheduler}")
        over = asyncio.create_task(self._over.wait())
        gone = asyncio.create_task(worker.finished())
        await asyncio.wait({over, gone}, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if not gone.done():
            await asyncio.wait_for(worker.close(timeout=_CLOSING, reason="ends"), _CLOSING)
        if not self._over.is_set():
            self._tell("the scheduler is gone")
