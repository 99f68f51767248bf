"""Trackers that are not there, say nothing, say anything, or know nobody."""

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from autopipe.measure.tracker import Address, Tracker, Unreached

MAGIC = struct.pack("<i", 0x2F271)
KNOWN = {"queue_info": {}, "server_info": [{"key": "server:a"}, {"key": "server:b\x1b"}]}


def packed(message: object) -> bytes:
    data = json.dumps(message).encode()
    return struct.pack("<i", len(data)) + data


@contextmanager
def saying(*answers: bytes, addresses: int = 9) -> Iterator[str]:
    """Answer each connection with the same, one answer for each thing that is said."""
    listening = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve() -> None:
        with suppress(OSError):
            for _ in range(addresses):
                connection, _ = listening.accept()
                with connection:
                    for answer in answers:
                        connection.recv(1 << 16)
                        connection.sendall(answer)
                    if not answers or answers[-1] == b"":
                        done.wait(5)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        done.set()
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)


@pytest.mark.fault("D12")
def test_a_tracker_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(Unreached, match=f"no RPC tracker answers at {place}: Connection refused"):
        Tracker(place, 1.0).known_keys()
    with pytest.raises(Unreached, match=r"no RPC tracker answers at host\.invalid:9190"):
        Tracker("host.invalid:9190", 1.0).known_keys()


@pytest.mark.fault("D12")
@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ((), "no RPC tracker answers at .*: no reply within 0.3 s"),
        ((MAGIC, b""), "no RPC tracker answers at .*: no reply within 0.3 s"),
        ((b"HTTP/1.1 400 Bad Request\r\n",), "what answers at .* is no RPC tracker"),
        ((MAGIC, struct.pack("<i", 1 << 30)), "what answers at .* is no RPC tracker"),
        ((MAGIC, struct.pack("<i", -1)), "what answers at .* is no RPC tracker"),
        ((MAGIC, struct.pack("<i", 4) + b"rubb"), "what answers at .* is no RPC tracker"),
        ((MAGIC, packed([0, {"server_info": 3}])), "what answers at .* is no RPC tracker"),
        ((MAGIC, packed([-1, None])), "what answers at .* is no RPC tracker"),
        ((MAGIC, packed("[" * 9000)[:100]), "connection was closed"),
    ],
)
def test_what_is_no_tracker_is_told_within_its_time(answers: tuple[bytes, ...], said: str) -> None:
    with saying(*answers) as place, pytest.raises(Unreached, match=said):
        Tracker(place, 0.3).known_keys()


def test_keys_are_told_once_each_and_harmless() -> None:
    with saying(MAGIC, packed([0, KNOWN])) as place:
        assert Tracker(place, 1.0).known_keys() == ["a", "b\x1b"]
        assert Tracker(place, 1.0).describe_keys() == f"the tracker at {place} knows a, 'b\\x1b'"


def test_a_device_has_a_word() -> None:
    with saying(MAGIC, packed([0, ["127.0.0.1", 9090, "a:0.3"]])) as place:
        assert Tracker(place, 1.0).request("a", 1.0) == Address("127.0.0.1", 9090, "a:0.3")


@pytest.mark.fault("D12")
def test_a_device_elsewhere_is_refused_unless_the_file_says_so() -> None:
    with saying(MAGIC, packed([0, ["192.0.2.1", 9090, "a:0.3"]])) as place:
        with pytest.raises(Unreached, match=r"192\.0\.2\.1:9090, which is another machine"):
            Tracker(place, 1.0).request("a", 1.0)
        assert Tracker(place, 1.0, anywhere=True).request("a", 1.0).host == "192.0.2.1"
