"""Peers that hold the certificate and break the protocol, and strangers: the farm goes on."""

import asyncio
import json
import socket
import ssl
import time
from contextlib import ExitStack, suppress

import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus, WebSocketException

from autopipe.errors import SetupError
from autopipe.farm import certificates, channel
from tests.farm.conftest import end, order, start, until
from tests.farm.rogue import WAYS
from tests.farm.test_farm import done, times

WHY = {
    "gigabyte": "cannot be read, or is too long", "fragments": "cannot be read, or is too long",
    "rubbish": "cannot be read, or is too long", "others": "cannot be read, or is too long",
    "silent": "takes orders and answers none",
}  # fmt: skip


def measured(place, label, count=8):
    """Have orders done, and tell whether all came back right."""
    with place.farm(label) as (farm, _):
        numbers = [farm.submit(order(), 1.0) for _ in range(count)]
        return times(done(farm, numbers)) == [1e-3] * count


def memory(process):
    return psutil.Process(process.pid).memory_info().rss


@pytest.mark.fault("O13")
@pytest.mark.parametrize("way", WAYS)
def test_a_worker_that_breaks_the_protocol_costs_no_trial_and_no_memory(place, way):
    arguments = (place.address, str(place.folder), f"rogue-{way}", way)
    with ExitStack() as stack:
        honest = place.work(f"rogue-{way}")
        stack.callback(end, honest)
        rogue = start(*arguments, module="tests.farm.rogue")
        stack.callback(end, rogue)
        until(rogue, "works for")
        before = memory(place.scheduler)
        farm, told = stack.enter_context(place.farm(f"rogue-{way}", workers=2))
        numbers = [farm.submit(order(run=0.05), 0.5) for _ in range(30)]
        assert times(done(farm, numbers)) == [1e-3] * 30
        assert [text.partition(":")[0] for text in told] == [
            f"worker rogue-{way} gets no more trials"
        ]
        assert WHY[way] in told[0]
        assert memory(place.scheduler) - before < 1 << 26


@pytest.fixture(scope="module")
def working(place):
    place.work("sound")
    return place


def peer_of(place, data=b"", *, tls=True):
    """Connect to the scheduler and send bytes; return the socket."""
    found = socket.create_connection(("127.0.0.1", place.port), 20)
    if tls:
        context = channel.load_tls(place.address, str(place.folder), server=False)
        assert context is not None
        found = context.wrap_socket(found)
    try:
        found.sendall(data)
    except OSError:
        found.close()
        raise
    return found


@pytest.mark.fault("O15")
@pytest.mark.parametrize(
    ("tls", "data"),
    [
        (False, b"\x00" * 4096),
        (False, b"GET / HTTP/1.1\r\n\r\n"),
        (True, b"\xff" * (1 << 20)),
        (True, b"GET / HTTP/1.1\r\n" + b"a: " + b"b" * (1 << 20)),
        (True, b"POST / HTTP/1.1\r\nContent-Length: 1000000000000\r\n\r\n" + b"x" * 4096),
    ],
)
def test_bytes_that_are_no_request_end_their_connection(working, tls, data):
    with suppress(OSError), peer_of(working, data, tls=tls) as peer:
        answer = peer.recv(1 << 16)
        assert answer == b"" or not answer.startswith(b"HTTP/1.1 101")
        while peer.recv(1 << 16):
            pass
    assert measured(working, "sound")


@pytest.mark.fault("O15")
def test_connections_that_say_nothing_are_closed_and_hold_up_nobody(working):
    silent = [peer_of(working, tls=n % 2 == 0) for n in range(60)]
    slow = peer_of(working, b"GET / HTTP/1.1\r\n")
    assert measured(working, "sound")
    for one in [*silent, slow]:
        with suppress(ConnectionError, ssl.SSLError):
            one.settimeout(40)
            while one.recv(1 << 16):  # until the scheduler closes it
                pass
        one.close()
    assert measured(working, "sound")


async def ask(place, *messages, **more):
    """Send messages on a connection of its own; return the answers until it is closed."""
    tls = channel.load_tls(place.address, str(place.folder), server=False)
    answers = []
    async with connect(f"wss://127.0.0.1:{place.port}", ssl=tls, proxy=None, **more) as peer:
        for message in messages:
            await peer.send(message if isinstance(message, bytes) else json.dumps(message))
        with suppress(TimeoutError, WebSocketException):
            while True:
                answers.append(json.loads(await asyncio.wait_for(peer.recv(), 10)))
    return answers


HELLO = {"protocol": channel.PROTOCOL, "role": "run", "label": "sound"}


@pytest.mark.fault("O13")
@pytest.mark.parametrize(
    "messages",
    [
        (b"\x80\x05cos\nsystem\n.",),
        (["protocol"],),
        ({**HELLO, "protocol": 0},),
        ({**HELLO, "role": "worker"},),
        ({**HELLO, "role": "worker", "name": "a", "facts": {}, "slots": 1},),
        (HELLO, {"do": "run", "code": "import os"}),
        (HELLO, {"do": "submit"}),
        (HELLO, {"do": "submit", "number": [], "order": "", "seconds": "x", "identity": 1}),
        (HELLO, {"do": "cancel", "numbers": 5}),
    ],
)
def test_messages_that_are_none_end_their_connection(working, messages):
    start = time.monotonic()
    answers = asyncio.run(ask(working, *messages))
    assert time.monotonic() - start < 9  # it was closed, and not waited for
    assert all({"farm", "refused"} & answer.keys() for answer in answers)
    assert measured(working, "sound")


@pytest.mark.fault("O14")
def test_a_page_in_a_browser_is_not_let_in(working):
    with pytest.raises(InvalidStatus, match="403"):
        asyncio.run(ask(working, HELLO, origin="http://127.0.0.1:8000"))


@pytest.mark.fault("O8")
@pytest.mark.parametrize("shared", [(), ("ca.pem",)], ids=["all of another farm", "our authority"])
def test_a_certificate_of_another_farm_is_refused(working, tmp_path, shared):
    certificates.make_certificates(tmp_path / "own")
    for name in shared:
        (tmp_path / "own" / name).write_bytes((working.folder / name).read_bytes())
    ours, working.folder = working.folder, tmp_path / "own"
    try:
        with pytest.raises(SetupError, match="not of one farm"), working.farm("sound"):
            pytest.fail("let in")
    finally:
        working.folder = ours


@pytest.mark.fault("O8")
def test_without_a_certificate_nothing_is_answered(working):
    context = ssl.create_default_context(cafile=str(working.folder / "ca.pem"))
    context.check_hostname = False
    with socket.create_connection(("127.0.0.1", working.port), 20) as plain:
        peer = context.wrap_socket(plain)
        with suppress(ConnectionError):  # it may be closed by then
            peer.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        with suppress(ssl.SSLError, ConnectionError), peer:
            assert peer.recv(1 << 16) == b""
