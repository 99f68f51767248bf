"""A socket between two processes: lines of JSON, with limits on size and time."""

import json
import math
import os
import select
import socket
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Final

MOST: Final = 1 << 30
"""Default maximum bytes of a message: a model without its weights is smaller."""

_AT_ONCE: Final = 1 << 16
"""Bytes that are read at a time."""

_LONGEST_WAIT: Final = 1e6
"""Maximum timeout of a `poll` in seconds, which the kernel stores as an integer."""


class TooLong(ValueError):  # noqa: N818 - says what is wrong
    """A message exceeds the size limit of its reader."""


class Link:
    """One end of a link.

    It only calls `poll`, `read` and `write`, which seccomp allows in a confined process.
    Use it in one thread at a time.
    """

    def __init__(self, descriptor: int) -> None:
        """Take ownership of the descriptor of a socket."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._rest = b""
        self.closed = False

    def fileno(self) -> int:
        """Return the descriptor; it is readable when there is a message, or the peer is gone."""
        return self._descriptor

    def send(self, message: object, seconds: float = math.inf) -> None:
        """Write a message. Raises EOFError if the other end is closed, and TimeoutError."""
        self.write(encode_message(message), seconds)

    def write(self, line: bytes, seconds: float = math.inf) -> None:
        """Write an encoded message. Raises the errors of `send`."""
        rest, end = memoryview(line), time.monotonic() + seconds
        while rest:
            self._wait_for_event(select.POLLOUT, end)
            with suppress(BlockingIOError):
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except ConnectionError:
                    raise EOFError from None

    def receive(self, seconds: float = math.inf, most: int = MOST) -> bytes:
        """Read an encoded message.

        Raises EOFError if the other end is closed, TimeoutError after `seconds`, and TooLong for
        one of more than `most` bytes.
        """
        end = time.monotonic() + seconds
        buffer = bytearray(self._rest)
        while (place := buffer.find(b"\n", max(0, len(buffer) - _AT_ONCE))) < 0:
            if len(buffer) > most:
                raise TooLong(f"more than {most} bytes")
            self._wait_for_event(select.POLLIN, end)
            buffer += self._read()
        self._rest = bytes(buffer[place + 1 :])
        return bytes(buffer[:place])

    def received(self) -> list[bytes]:
        """Return the messages that have arrived. Raises EOFError after the last one."""
        *lines, self._rest = (self._rest + self._read()).split(b"\n")
        return lines

    def close(self) -> None:
        """Close this end."""
        if not self.closed:
            self.closed = True
            os.close(self._descriptor)

    def _read(self) -> bytes:
        try:
            data = os.read(self._descriptor, _AT_ONCE)
        except BlockingIOError:
            return b""
        except ConnectionError:
            data = b""
        if not data:
            raise EOFError
        return data

    def _wait_for_event(self, event: int, end: float) -> None:
        poll = select.poll()
        poll.register(self._descriptor, event)
        left = min(max(0.0, end - time.monotonic()), _LONGEST_WAIT)
        if not poll.poll(None if end == math.inf else left * 1000):
            raise TimeoutError


def make_link_pair() -> tuple[Link, Link]:
    """Return two connected ends; pass one to another process, and close it here."""
    ours, theirs = socket.socketpair()
    return Link(ours.detach()), Link(theirs.detach())


def wait_for_readable(links: Collection[Link], seconds: float) -> set[Link]:
    """Wait up to `seconds` until a link is readable; return the readable ones."""
    waiting = select.poll()
    for link in links:
        waiting.register(link.fileno(), select.POLLIN)
    readable = {descriptor for descriptor, _ in waiting.poll(min(seconds, _LONGEST_WAIT) * 1000)}
    return {link for link in links if link.fileno() in readable}


def encode_message(message: object) -> bytes:
    """Encode a message as a line. Raises TypeError or ValueError for values outside JSON."""
    return json.dumps(message).encode() + b"\n"
