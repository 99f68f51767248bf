"""`autopipe worker`: joins a farm, and executes the orders of its scheduler."""

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from autopipe.errors import SetupError
from autopipe.farm import channel
from autopipe.farm.joining import Joining
from autopipe.farm.workbench import Workbench

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_PAUSE: Final = 2.0
"""Seconds between two attempts to find the scheduler."""


def run_worker(joining: Joining, tell: Callable[[str], None]) -> None:
    """Work until SIGTERM or Ctrl-C.

    Raises SetupError if this worker is refused, or the scheduler cannot be reached.
    """
    channel.load_tls(joining.scheduler, joining.certificates, server=False)  # before TVM is loaded
    bench = Workbench()
    try:
        asyncio.run(_Worker(joining, bench, tell).serve())
    finally:
        bench.close()


class _Worker:
    """Connects to a scheduler, and reconnects after a loss."""

    def __init__(self, joining: Joining, bench: Workbench, tell: Callable[[str], None]) -> None:
        self._joining, self._bench, self._tell = joining, bench, tell
        self._name = f"{joining.label}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        cores = int(bench.facts["device"]["cores"])
        self._slots = 2 * cores  # while one half is built, the other waits to be timed
        self._pool = ThreadPoolExecutor(self._slots)
        self._doing: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        from websockets.exceptions import WebSocketException

        over = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, over.set)
        lost_time, looking, where = monotonic(), False, self._joining.scheduler
        while not over.is_set():
            try:
                connection = await self._join()
                looking = False
                await self._work(connection, over)
                lost_time = monotonic()
            except (OSError, TimeoutError, ValueError, WebSocketException) as error:
                explanation = channel.explain_refusal(error, where, self._joining.certificates)
                if explanation and channel.is_foreign(error):
                    raise SetupError(explanation) from error
                if monotonic() - lost_time >= self._joining.patience:
                    why = explanation or f"{where}: there is no scheduler: {error}"
                    raise SetupError(why) from error
                if not looking:
                    self._tell(f"looking for a scheduler at {explanation or where}")
                looking = True
                with suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), _PAUSE)

    async def _join(self) -> "ClientConnection":
        """Connect to the scheduler. Raises SetupError if it refuses this worker."""
        where = self._joining.scheduler
        connection = await channel.connect(
            where, self._joining.certificates, channel.HANDSHAKE, channel.SILENCE
        )
        hello = {
            "protocol": channel.PROTOCOL, "role": "worker", "name": self._name,
            "label": self._joining.label, "facts": self._bench.facts, "slots": self._slots,
        }  # fmt: skip
        await connection.send(channel.encode_message(hello))
        answer = await asyncio.wait_for(channel.receive(connection), channel.HANDSHAKE)
        if "refused" in answer:
            raise SetupError(f"{where} refuses this worker: {answer['refused']}")
        if "welcome" not in answer:
            raise ConnectionError("this worker's last connection is not yet closed there")
        return connection

    async def _work(self, connection: "ClientConnection", over: asyncio.Event) -> None:
        """Execute orders until the connection or the worker ends."""
        self._tell(f"{self._name} works for {self._joining.scheduler}")
        ending = asyncio.create_task(over.wait())
        taking = asyncio.create_task(self._take(connection))
        await asyncio.wait({ending, taking}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        taking.cancel()
        channel.abort_connection(connection)
        if not over.is_set():
            self._tell("the scheduler is gone")

    async def _take(self, connection: "ClientConnection") -> None:
        """Start a task for each order of the scheduler."""
        from websockets.exceptions import ConnectionClosed

        with suppress(ConnectionClosed, ValueError, LookupError):
            while True:
                task = asyncio.create_task(self._do(connection, await channel.receive(connection)))
                self._doing.add(task)
                task.add_done_callback(self._doing.discard)

    async def _do(self, connection: "ClientConnection", message: Mapping[str, Any]) -> None:
        """Execute an order on the bench, and send its answer."""
        from websockets.exceptions import ConnectionClosed

        loop = asyncio.get_running_loop()
        order, seconds = str(message["text"]), float(message["seconds"])
        text = await loop.run_in_executor(self._pool, self._bench.do, order, seconds)
        with suppress(ConnectionClosed):  # the order is reassigned
            await connection.send(
                channel.encode_message({"answer": message["order"], "text": text})
            )
