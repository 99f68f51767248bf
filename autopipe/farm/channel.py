"""Connections of a farm: JSON objects over WebSocket and mutual TLS, bounded in size and silence.

A message is data and never code. One that is longer than `MESSAGE` ends its connection before
memory is allocated for it, nothing is compressed, and a peer that answers no ping is dropped.
"""

import json
import logging
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autopipe import foreign
from autopipe.errors import SetupError
from autopipe.farm.certificates import (
    AUTHORITY,
    CERTIFICATE,
    INSTALL,
    KEY,
    check_folder,
    find_default_directory,
)
from autopipe.farm.wire import MESSAGE

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection
    from websockets.asyncio.connection import Connection
    from websockets.asyncio.server import Server, ServerConnection

PROTOCOL: Final = 1
"""Version of the protocol, which has to be equal at both ends."""

SILENCE: Final = 20.0
"""Seconds without an answer to a ping after which a peer counts as gone."""

HANDSHAKE: Final = 10.0
"""Seconds that TLS, the request of a WebSocket and the first message may take, each."""

_SCHEMES: Final = {"tls": "wss", "tcp": "ws"}

_DEEPEST: Final = 20
"""Maximum number of causes of an error that are inspected."""


class ProtocolError(ValueError):
    """A peer sent an invalid message."""


def load_tls(address: str, folder: str | None, *, server: bool) -> ssl.SSLContext | None:
    """Load the certificates for an address; None for one without TLS.

    Both ends have to present a certificate of the farm's own authority. Raises SetupError if a
    file is missing, or others can read the key.
    """
    if not address.startswith("tls://"):
        return None
    place = check_folder(Path(folder) if folder else find_default_directory())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # one certificate serves all machines of a farm
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(place / AUTHORITY)
        context.load_cert_chain(place / CERTIFICATE, place / KEY)
    except ssl.SSLError as error:
        raise SetupError(f"{place}: its certificates cannot be read: {error}") from error
    return context


async def connect(
    address: str, folder: str | None, seconds: float, silence: float
) -> "ClientConnection":
    """Connect to a scheduler within `seconds`, and drop it after `silence` seconds without a pong.

    Raises SetupError, OSError, TimeoutError and `websockets.WebSocketException`.
    """
    tls = load_tls(address, folder, server=False)
    _require_websockets()
    from websockets.asyncio.client import connect as open_connection

    scheme, _, place = address.partition("://")
    return await open_connection(
        f"{_SCHEMES[scheme]}://{place}", ssl=tls, proxy=None, open_timeout=seconds,
        **_list_limits(silence),
    )  # fmt: skip


async def listen(address: str, folder: str | None, attend: Any, silence: float) -> "Server":  # noqa: ANN401 -- a coroutine
    """Accept connections at an address, each of which `attend` serves. Raises SetupError."""
    tls = load_tls(address, folder, server=True)
    _require_websockets()
    from websockets.asyncio.server import serve

    host, _, port = address.partition("://")[2].rpartition(":")
    tls_options = {"ssl_handshake_timeout": HANDSHAKE} if tls else {}
    try:
        # Browsers state an origin: no page may speak to a farm on this machine.
        return await serve(
            attend, host.strip("[]"), int(port), ssl=tls, origins=[None], open_timeout=HANDSHAKE,
            **_list_limits(silence), **tls_options,
        )  # fmt: skip
    except OSError as error:
        raise SetupError(f"{address} cannot be listened at: {error}") from error


async def receive(connection: "Connection") -> dict[str, Any]:
    """Receive a message. Raises ProtocolError, and `websockets.ConnectionClosed`."""
    text = await connection.recv()
    try:
        return foreign.parse_object(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"no message of a farm: {error}") from None


def encode_message(message: Mapping[str, Any]) -> str:
    """Encode a message as JSON."""
    return json.dumps(message, separators=(",", ":"))


def abort_connection(connection: "ClientConnection | ServerConnection") -> None:
    """Close a connection at once, discarding unsent messages."""
    connection.transport.abort()


def is_foreign(error: BaseException) -> bool:
    """Return whether a connection failed because the certificates are of different farms."""
    return any(isinstance(cause, ssl.SSLError) for cause in _list_causes(error))


def explain_refusal(error: BaseException, address: str, folder: str | None) -> str | None:
    """Explain a connection that failed because of the certificates; None for other errors.

    A scheduler that rejects a certificate closes the connection without a message.
    """
    place = Path(folder) if folder else find_default_directory()
    of_two = f"its certificate and those in {place} are not of one farm; copy the folder that"
    if is_foreign(error):
        return f"{address}: {of_two} its scheduler uses"
    if address.startswith("tls://") and any(
        isinstance(one, EOFError) for one in _list_causes(error)
    ):
        return (
            f"{address}: closes the connection; it is no scheduler, or {of_two} its scheduler uses"
        )
    return None


def _list_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    cause: BaseException | None = error
    for _ in range(_DEEPEST):
        if cause is not None:
            yield cause
            cause = cause.__cause__ or cause.__context__


def _list_limits(silence: float) -> dict[str, Any]:
    return {
        "compression": None, "max_size": MESSAGE, "max_queue": 4, "close_timeout": 1.0,
        "ping_interval": silence / 2, "ping_timeout": silence / 2,
    }  # fmt: skip


def _require_websockets() -> None:
    try:
        import websockets  # noqa: F401 -- whether it is there
    except ImportError:
        raise SetupError(f"websockets is not installed; {INSTALL}") from None
    logging.getLogger("websockets").setLevel(logging.CRITICAL)  # autopipe reports the errors
