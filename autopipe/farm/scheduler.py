"""The scheduler of a farm: connects runs with workers, without persistent state."""

import asyncio
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter, ValidationError

from autopipe.config import tuning
from autopipe.config.problem import format_value
from autopipe.farm import channel
from autopipe.farm.channel import PROTOCOL, ProtocolError
from autopipe.farm.exchange import ConnectedRun, ConnectedWorker, Exchange, SharedOrder, Tell

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection

_BACKLOG: Final = 10_000
"""Maximum number of queued messages for a peer, which is dropped beyond that."""

_LOOK: Final = 5.0
"""Seconds between two checks for overdue workers."""

_LONGEST: Final = 86400.0
"""Maximum time limit of an order in seconds."""

_BROKEN: Final = frozenset({1002, 1003, 1007, 1009})
"""Close codes of WebSocket for a peer that breaks the protocol."""

_LABEL: Final = TypeAdapter[str](tuning.Label)

_UNREADABLE: Final = "its answer cannot be read, or is too long"

_OVERDUE: Final = "it takes orders and answers none"


def run_scheduler(address: str, certificates: str | None, tell: Callable[[str], None]) -> None:
    """Schedule at this address until SIGTERM or Ctrl-C. Raises SetupError."""
    asyncio.run(Scheduler(tell).serve(address, certificates))


class Scheduler:
    """Serves peers: parses their messages, and passes them to an `Exchange`."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._exchange = Exchange()
        self._connections: dict[str, ServerConnection] = {}

    async def serve(self, address: str, certificates: str | None) -> None:
        """Serve until SIGTERM or Ctrl-C. Raises SetupError."""
        over = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, over.set)
        server = await channel.listen(address, certificates, self._attend, channel.SILENCE)
        self._tell(f"scheduler at {address}")
        watching = asyncio.create_task(self._drop_overdue())
        await over.wait()
        watching.cancel()
        server.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 2 * channel.SILENCE)

    async def _attend(self, connection: "ServerConnection") -> None:
        """Serve a peer until it leaves or breaks the protocol."""
        from websockets.exceptions import ConnectionClosed

        outgoing: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue(_BACKLOG)

        def tell(message: Mapping[str, Any]) -> None:
            try:
                outgoing.put_nowait(message)
            except asyncio.QueueFull:
                channel.abort_connection(connection)

        sending = asyncio.create_task(_send(connection, outgoing))
        try:
            hello = await asyncio.wait_for(channel.receive(connection), channel.HANDSHAKE)
            if hello.get("protocol") != PROTOCOL:
                refusal = (
                    f"it speaks protocol {format_value(str(hello.get('protocol')))}, not {PROTOCOL}"
                )
                await connection.send(channel.encode_message({"refused": refusal}))
            elif hello.get("role") == "worker":
                await self._attend_worker(connection, hello, tell)
            else:
                await self._attend_run(connection, hello, tell)
        except (ConnectionClosed, TimeoutError):
            return
        except (ProtocolError, ValidationError, LookupError, TypeError, ValueError) as error:
            self._tell(f"dropped a peer: {format_value(' '.join(str(error).split()), 200)}")
            channel.abort_connection(connection)
        finally:
            sending.cancel()

    async def _attend_worker(
        self, connection: "ServerConnection", hello: Mapping[str, Any], tell: Tell
    ) -> None:
        from websockets.exceptions import ConnectionClosed

        worker = ConnectedWorker(
            str(hello["name"])[:200], _LABEL.validate_python(hello["label"]), dict(hello["facts"]),
            int(hello["slots"]), tell,
        )  # fmt: skip
        if worker.name in self._exchange.workers:  # its earlier connection is not yet closed
            await connection.send(channel.encode_message({"taken": worker.name}))
            return
        reason = self._exchange.find_refusal(worker)
        if reason is not None:
            self._tell(f"refused {format_value(worker.name)}: {reason}")
            await connection.send(channel.encode_message({"refused": reason}))
            return
        tell({"welcome": worker.name})
        self._connections[worker.name] = connection
        self._exchange.admit(worker)
        self._tell(f"{format_value(worker.name)} joined")
        why: str | None = None
        try:
            while True:
                message = await channel.receive(connection)
                self._exchange.answer(worker, int(message["answer"]), str(message["text"]))
        except ConnectionClosed as error:
            why = _UNREADABLE if error.sent and error.sent.code in _BROKEN else None
        except (ProtocolError, LookupError, TypeError, ValueError):
            why = _UNREADABLE
            raise
        finally:
            self._exchange.dismiss(worker, _OVERDUE if worker.is_overdue else why)
            del self._connections[worker.name]
            self._tell(f"{format_value(worker.name)} left")

    async def _attend_run(
        self, connection: "ServerConnection", hello: Mapping[str, Any], tell: Tell
    ) -> None:
        run = ConnectedRun(str(hello["label"]), tell)
        tell({"farm": self._exchange.describe()})
        self._exchange.enter(run)
        try:
            while True:
                self._take_request(run, await channel.receive(connection))
        finally:
            self._exchange.depart(run)

    def _take_request(self, run: ConnectedRun, message: Mapping[str, Any]) -> None:
        """Execute a request of a run. Raises LookupError, TypeError and ValueError."""
        match message["do"]:
            case "submit":
                seconds = min(max(0.0, float(message["seconds"])), _LONGEST)
                key = (run.label, str(message["identity"]))
                order = SharedOrder(str(message["order"]), seconds, key, int(message["failed"]))
                self._exchange.submit(run, int(message["number"]), order)
            case "cancel":
                self._exchange.cancel(run, map(int, message["numbers"]))
            case "reject":
                self._exchange.reject(run, str(message["worker"]))
            case other:
                raise ProtocolError(f"no request: {other!r}")

    async def _drop_overdue(self) -> None:
        """Close connections to workers that hold orders and answer none."""
        while True:
            await asyncio.sleep(_LOOK)
            for name, worker in self._exchange.workers.items():
                if worker.is_overdue:
                    channel.abort_connection(self._connections[name])


async def _send(connection: "ServerConnection", outgoing: Any) -> None:  # noqa: ANN401 -- a queue
    """Send the queued messages of a peer; drop a peer that does not read."""
    from websockets.exceptions import ConnectionClosed

    with suppress(ConnectionClosed):
        while True:
            message = await outgoing.get()
            try:
                await asyncio.wait_for(
                    connection.send(channel.encode_message(message)), channel.SILENCE
                )
            except TimeoutError:
                channel.abort_connection(connection)
                return
