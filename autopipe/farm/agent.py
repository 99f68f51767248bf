"""The process that holds a run's connection to a scheduler; a run must stay single-threaded.

Messages are relayed unchanged in both directions. It adds two lines of its own: `pulse` as the
answer to a ping of the run, and `lost` as the last line.
"""

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from autopipe.errors import AutopipeError, SetupError
from autopipe.farm import channel
from autopipe.processes import failure
from autopipe.processes.link import Link, encode_message
from autopipe.processes.start import open_parent_link

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection


class Agent:
    """Relays between a run and one scheduler."""

    def __init__(self, link: Link, start: Mapping[str, Any]) -> None:
        """Set the link to the run, and its first message."""
        self._link, self._start = link, start
        self._to_run: asyncio.Queue[object] = asyncio.Queue()
        self._to_scheduler: asyncio.Queue[str] = asyncio.Queue()
        self._over = asyncio.Event()

    async def serve(self) -> None:
        """Relay until either side closes its connection."""
        from websockets.exceptions import WebSocketException

        try:
            connection = await self._connect()
        except (OSError, TimeoutError, ValueError, WebSocketException, AutopipeError) as error:
            setup_error = error if isinstance(error, AutopipeError) else self._to_setup_error(error)
            self._link.write(failure.encode_failure(failure.describe_refused(setup_error)))
            return
        asyncio.get_running_loop().add_reader(self._link.fileno(), self._read_run)
        tasks = [
            asyncio.create_task(work)
            for work in (self._receive(connection), self._send(connection), self._write_run())
        ]
        await self._over.wait()
        for task in tasks:
            task.cancel()
        channel.abort_connection(connection)

    async def _connect(self) -> "ClientConnection":
        """Connect, and send the run the description of the farm."""
        start = self._start
        connection = await channel.connect(
            start["scheduler"], start["certificates"], start["connect"], start["silence"]
        )
        hello = {"protocol": channel.PROTOCOL, "role": "run", "label": start["label"]}
        await connection.send(channel.encode_message(hello))
        first = await asyncio.wait_for(channel.receive(connection), start["connect"])
        if "farm" not in first:
            raise SetupError(f"{start['scheduler']} refuses this run: {first.get('refused')}")
        self._link.write(failure.encode_answer(first["farm"]))
        return connection

    def _to_setup_error(self, error: Exception) -> SetupError:
        address, certificates = self._start["scheduler"], self._start["certificates"]
        if explanation := channel.explain_refusal(error, address, certificates):
            return SetupError(f"tuning.measure.scheduler: {explanation}")
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        return SetupError(
            f"tuning.measure.scheduler: {address} does not answer within"
            f" {self._start['connect']:g} s: {reason}"
        )

    def _read_run(self) -> None:
        """Read the messages of the run."""
        try:
            for line in self._link.received():
                if json.loads(line)["do"] == "pulse":
                    self._to_run.put_nowait({"pulse": True})
                else:
                    self._to_scheduler.put_nowait(line.decode())
        except EOFError:
            self._over.set()

    async def _send(self, connection: "ClientConnection") -> None:
        from websockets.exceptions import ConnectionClosed

        with suppress(ConnectionClosed):  # which is reported where it is received
            while True:
                await connection.send(await self._to_scheduler.get())

    async def _receive(self, connection: "ClientConnection") -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            while True:
                self._to_run.put_nowait(await channel.receive(connection))
        except (ConnectionClosed, ValueError) as error:
            self._to_run.put_nowait({"lost": " ".join(str(error).split())[:300] or "no answer"})

    async def _write_run(self) -> None:
        """Write to the run in a thread: the run may not read for a long time."""
        with suppress(EOFError):
            while True:
                message = await self._to_run.get()
                await asyncio.to_thread(self._link.write, encode_message(message))
        self._over.set()


def main() -> None:
    """Serve the run that started this program."""
    link = open_parent_link()
    start = json.loads(link.receive())
    asyncio.run(Agent(link, start).serve())
    os._exit(0)


if __name__ == "__main__":
    main()
