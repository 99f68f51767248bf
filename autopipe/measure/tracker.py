"""A client of TVM's RPC tracker with deadlines: lists devices, and requests one.

TVM's own client waits forever where a tracker does not answer, or has no device for a key. The
protocol is JSON over TCP: each message is its size as four bytes, then the text. A request returns
a device with the match key that the device then expects; the device becomes free again when its
session ends.
"""

import json
import socket
import struct
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Self

from autopipe.config.tuning import is_loopback
from autopipe.errors import SetupError

_MAGIC: Final = struct.pack("<i", 0x2F271)
_REQUEST, _SUMMARY, _SUCCESS = 4, 6, 0
_MAX_MESSAGE_BYTES: Final = 1 << 20
"""Bytes of a message; the limit of TVM's tracker."""

_SERVER: Final = "server:"
"""Prefix of the key in a tracker's summary of a device."""


class Unreached(SetupError):  # noqa: N818 - says what happened
    """A tracker does not answer, or has no device."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a device, and its match key."""

    host: str
    port: int
    word: str

    def __str__(self) -> str:
        """Return host and port."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Tracker:
    """A tracker, by host and port."""

    place: str
    seconds: float
    """Time limit of an answer."""
    anywhere: bool = False
    """Whether devices outside of loopback are allowed."""

    def known_keys(self) -> list[str]:
        """List the distinct keys of the registered devices. Raises Unreached."""
        with _Talk(self, self.seconds) as talk:
            try:
                summary = talk.ask([_SUMMARY])
            except TimeoutError:
                raise self.unreached(f"no reply within {self.seconds:g} s") from None
        try:
            keys = {str(server["key"]).removeprefix(_SERVER) for server in summary["server_info"]}
        except (TypeError, LookupError):
            raise self.odd() from None
        return sorted(keys)

    def request(self, key: str, seconds: float) -> Address:
        """Wait for a free device of a key. Raises Unreached after `seconds`."""
        with _Talk(self, seconds) as talk:
            try:
                answer = talk.ask([_REQUEST, key, "", 1])
            except TimeoutError:
                raise Unreached(
                    f"no device {key!a} was free within {seconds:g} s; {self.describe_keys()}"
                ) from None
        try:
            host, port, word = answer
            address = Address(str(host), int(port), str(word))
        except (TypeError, ValueError):
            raise self.odd() from None
        if not self.anywhere and not is_loopback(address.host):
            raise Unreached(
                f"the tracker at {self.place} sends to {address}, which is another machine: "
                "anybody on the way could run code; use a tunnel, or say "
                "`anyone_on_the_network_may_run_code: true`"
            )
        return address

    def describe_keys(self) -> str:
        """Describe the keys of the registered devices in words. Raises Unreached."""
        keys = ", ".join(key if key.isprintable() else ascii(key) for key in self.known_keys()[:20])
        return f"the tracker at {self.place} knows {keys or 'no device'}"

    def odd(self) -> Unreached:
        """Build the error for a peer that does not speak the tracker protocol."""
        return Unreached(f"what answers at {self.place} is no RPC tracker")

    def unreached(self, why: object) -> Unreached:
        """Build the error for a tracker that does not answer."""
        return Unreached(f"no RPC tracker answers at {self.place}: {why}")


class _Talk:
    """A connection to a tracker with a total time limit."""

    def __init__(self, tracker: Tracker, seconds: float) -> None:
        """Connect. Raises Unreached."""
        self._tracker, self._end = tracker, monotonic() + seconds
        host, _, port = tracker.place.rpartition(":")
        try:
            self._socket = socket.create_connection(
                (host.strip("[]"), int(port)), min(seconds, tracker.seconds)
            )
        except OSError as error:
            raise tracker.unreached(error.strerror or error) from None
        try:
            self._read_magic(min(self._end, monotonic() + tracker.seconds))
        except BaseException:
            self._socket.close()
            raise

    def ask(self, message: list[object]) -> Any:  # noqa: ANN401 - JSON
        """Send a message and return the value of a success. Raises Unreached, and TimeoutError."""
        data = json.dumps(message).encode()
        try:
            self._socket.sendall(struct.pack("<i", len(data)) + data)
            (size,) = struct.unpack("<i", self._bytes(4, self._end))
            if not 0 < size <= _MAX_MESSAGE_BYTES:
                raise self._tracker.odd()
            code, value = json.loads(self._bytes(size, self._end))
        except TimeoutError:
            raise
        except OSError as error:
            raise self._tracker.unreached(error.strerror or error) from None
        except (ValueError, TypeError, RecursionError):
            raise self._tracker.odd() from None
        if code != _SUCCESS:
            raise self._tracker.odd()
        return value

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _read_magic(self, end: float) -> None:
        try:
            self._socket.sendall(_MAGIC)
            reply = self._bytes(len(_MAGIC), end)
        except TimeoutError:
            within = f"no reply within {self._tracker.seconds:g} s"
            raise self._tracker.unreached(within) from None
        except OSError as error:
            raise self._tracker.unreached(error.strerror or error) from None
        if reply != _MAGIC:
            raise self._tracker.odd()

    def _bytes(self, count: int, end: float) -> bytes:
        """Read `count` bytes. Raises TimeoutError, and OSError if the connection ends before."""
        data = b""
        while len(data) < count:
            left = end - monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            part = self._socket.recv(min(count - len(data), 1 << 16))
            if not part:
                raise ConnectionResetError("the connection was closed")
            data += part
        return data
