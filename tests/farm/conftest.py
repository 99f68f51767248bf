"""A farm on loopback, over TLS: a scheduler and workers that are processes of their own."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from itertools import count

import pytest

from autopipe.config.tuning import Reach
from autopipe.farm import certificates
from autopipe.farm.farm import Farm
from autopipe.farm.wire import RemoteCandidate, WorkOrder

NUMBERS = count(int.from_bytes(os.urandom(4)))


def order(**schedule: float) -> WorkOrder:
    """Return an order that is like no other one."""
    candidate = RemoteCandidate("", "direct", json.dumps({**schedule, "number": next(NUMBERS)}))
    return WorkOrder(
        "time", {"num_cores": 2}, fast_algorithms=True, measure={}, touched=0,
        candidates=(candidate,),
    )  # fmt: skip


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(*arguments: str, module: str = "tests.farm.start", before=(), **variables: str):
    """Start a command, with what comes `before` it."""
    return subprocess.Popen(
        [*before, sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **variables},
    )  # fmt: skip


def until(process, words):
    """Wait for a line of a command with these words."""
    for line in process.stdout:
        if words in line:
            return
    pytest.fail(f"{process.args} ended with {process.wait()}")


def end(process):
    for number in (signal.SIGCONT, signal.SIGKILL):
        with suppress(ProcessLookupError):
            process.send_signal(number)
    process.wait()
    process.stdout.close()


class Place:
    """A scheduler, and what starts workers for it."""

    def __init__(self, folder, port, stack, host="127.0.0.1"):
        self.folder, self.port, self.stack = folder, port, stack
        self.address = f"tls://127.0.0.1:{port}"
        self.listen = f"tls://{host}:{port}"
        self.scheduler = None

    def schedule(self):
        self.scheduler = start(
            "scheduler", "--listen", self.listen, "--certificates", str(self.folder)
        )
        self.stack.callback(end, self.scheduler)
        until(self.scheduler, "scheduler at")

    def arguments(self, label, address=None):
        return (
            "worker", "--scheduler", address or self.address, "--label", label,
            "--certificates", str(self.folder),
        )  # fmt: skip

    def begin(
        self, label: str, address: str | None = None, **variables: str
    ) -> "subprocess.Popen[str]":
        """Start a worker; `until` it works it is no use."""
        found: subprocess.Popen[str] = start(*self.arguments(label, address), **variables)
        self.stack.callback(end, found)
        return found

    def work(
        self, label: str, address: str | None = None, **variables: str
    ) -> "subprocess.Popen[str]":
        found = self.begin(label, address, **variables)
        until(found, "works for")
        return found

    @contextmanager
    def farm(self, label, *, address=None, workers=1, **reach):
        told: list[str] = []
        reach = {"connect_timeout": 5.0, "wait_timeout": 5.0, **reach}
        farm = Farm(
            Reach(scheduler=address or self.address, certificates=str(self.folder), **reach),
            label, told.append,
        )  # fmt: skip
        try:
            end = time.monotonic() + 30
            while len(farm.own) < workers and time.monotonic() < end:
                farm.pump(1.0)
            yield farm, told
        finally:
            farm.close()


@contextmanager
def place_in(folder, **where):
    with ExitStack() as stack:
        certificates.make_certificates(folder / "keys")
        place = Place(folder / "keys", free_port(), stack, **where)
        place.schedule()
        yield place


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with place_in(tmp_path_factory.mktemp("farm")) as place:
        yield place


class Proxy:
    """A TCP proxy on loopback that forwards until it is told to drop everything."""

    def __init__(self, port):
        self.target, self.port = port, free_port()
        self.dropping = False
        self._server = socket.create_server(("127.0.0.1", self.port))
        self._over = False
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def address(self):
        return f"tls://127.0.0.1:{self.port}"

    def close(self):
        self._over = True
        self._server.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._server.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                one, _ = self._server.accept()
                try:
                    other = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    one.close()
                else:
                    self._start(self._pass, one, other)

    def _start(self, work, *arguments):
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self._threads[-1].start()

    def _pass(self, *pair):
        try:
            while not self._over:
                for own in select.select(pair, (), (), 0.2)[0]:
                    data = own.recv(1 << 16)
                    if not data:
                        return
                    if not self.dropping:
                        pair[pair[0] is own].sendall(data)
        except (OSError, ValueError):
            return  # one side is gone
        finally:
            for each in pair:
                each.close()


@pytest.fixture
def proxy(place):
    found = Proxy(place.port)
    yield found
    found.close()
