"""What two processes talk over: each line is a JSON value, read and written within bounds."""

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
"""Bytes of a message, where its reader knows no better: a model without its weights is smaller."""

_AT_ONCE: Final = 1 << 16
"""Bytes that are read at a time."""

_LONGEST_WAIT: Final = 1e6
"""Seconds that the kernel is asked to wait at most, for which it has a whole number."""


class TooLong(ValueError):  # noqa: N818 - says what is wrong
    """A message has more bytes than its reader takes."""


class Link:
    """One end of it.

    Only `poll`, `read` and `write` are called, which a process that is confined may do as well.
    Use it in one thread at a time.
    """

    def __init__(self, descriptor: int) -> None:
        """Take over the descriptor of an end of a socket."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._rest = b""
        self.closed = False

    def fileno(self) -> int:
        """Return the descriptor; it is readable when the other has something to say, or is gone."""
        return self._descriptor

    def send(self, message: object, seconds: float = math.inf) -> None:
        """Write a message. Raises EOFError where the other end is closed, and TimeoutError."""
        self.write(encode_message(message), seconds)

    def write(self, line: bytes, seconds: float = math.inf) -> None:
        """Write what `encode_message` has made of a message. Raises as `send`."""
        rest, end = memoryview(line), time.monotonic() + seconds
        while rest:
            self._wait_for_event(select.POLLOUT, end)
            with suppress(BlockingIOError):
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except ConnectionError:
                    raise EOFError from None

    def receive(self, seconds: float = math.inf, most: int = MOST) -> bytes:
        """Read a message, still as text.

        Raises EOFError where the other end is closed, TimeoutError after so many seconds, and
        TooLong for one of more than so many bytes.
        """
        end = time.monotonic() + seconds
        found = bytearray(self._rest)
        while (place := found.find(b"\n", max(0, len(found) - _AT_ONCE))) < 0:
            if len(found) > most:
                raise TooLong(f"more than {most} bytes")
            self._wait_for_event(select.POLLIN, end)
            found += self._read()
        self._rest = bytes(found[place + 1 :])
        return bytes(found[:place])

    def received(self) -> list[bytes]:
        """Return the messages that are there by now. Raises EOFError after the last one."""
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
    """Return two ends that are linked; give one to another process, and close it here."""
    ours, theirs = socket.socketpair()
    return Link(ours.detach()), Link(theirs.detach())


def wait_for_readable(links: Collection[Link], seconds: float) -> set[Link]:
    """Wait until one of them can be read, or that long, and return those that can be."""
    waiting = select.poll()
    for link in links:
        waiting.register(link.fileno(), select.POLLIN)
    found = {descriptor for descriptor, _ in waiting.poll(min(seconds, _LONGEST_WAIT) * 1000)}
    return {link for link in links if link.fileno() in found}


def encode_message(message: object) -> bytes:
    """Return a message as a line. Raises TypeError or ValueError for what JSON cannot say."""
    return json.dumps(message).encode() + b"\n"
