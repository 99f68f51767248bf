"""Templates, implementations and engines that end badly, each in the way it is asked to."""

import ctypes
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from autopipe.schedules import implementations, templates
from autopipe.schedules.engines import registry
from autopipe.schedules.templates.template import Template
from tests.schedules.bad_schedules import spoil_block
from tests.support import hungry

PROMISED = 1 << 30
"""Bytes that hungry work stops at, so that a limit that is none hurts nobody."""


def eat():
    taken = hungry.take(PROMISED)
    raise AssertionError(f"nobody minds {len(taken)} MiB")


def mistake():
    raise RuntimeError("no such loop")


WAYS: dict[str, Callable[[], object]] = {
    "crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "native crash": lambda: ctypes.string_at(0),
    "hang": lambda: time.sleep(60),
    "memory": eat,
    "exception": mistake,
}
ENDS = {
    "crash": "killed by SIGSEGV",
    "native crash": "killed by SIGSEGV",
    "hang": "no answer within 2 s",
    "memory": "out of memory",
    "exception": "RuntimeError: no such loop",
}
"""How each is told."""


@dataclass(frozen=True)
class NoKnobs:
    """None."""


class BadTemplate(Template[str, NoKnobs]):
    """Ends badly where it looks at a function, or has what it schedules do so."""

    name, version = "bad", 1

    def __init__(self, way, *, schedules=False):
        self.way, self.schedules = way, schedules

    def match(self, sch):
        if not self.schedules:
            WAYS[self.way]()
        return sch.get(sch.get_child_blocks(sch.get_sblock("root"))[-1]).name_hint

    def settings(self, match, hardware):
        yield NoKnobs()

    def fill(self, match, hardware):
        return NoKnobs()

    def apply(self, sch, match, knobs):
        spoil_block(sch, sch.get_sblock(match), self.way)


class Implementation:
    """Ends badly where it looks at a function."""

    NAME, FAST = "bad", False

    def __init__(self, way):
        self.way = way

    def rewrite(self, workload):
        return WAYS[self.way]()

    def gain(self, workload, hardware):
        return 2.0


class Engine:
    """Ends badly where it is asked for schedules."""

    name = "ansor"

    def __init__(self, way):
        self.way = way

    def search(self, problem):
        return self

    def propose(self, count):
        return WAYS[self.way]()


def template(monkeypatch, way, **options):
    """Have a bad template asked first."""
    monkeypatch.setattr(templates, "TEMPLATES", (BadTemplate(way, **options), *templates.TEMPLATES))


def implementation(monkeypatch, way):
    """Have a bad implementation asked first."""
    found = (Implementation(way), *implementations.IMPLEMENTATIONS)
    monkeypatch.setattr(implementations, "IMPLEMENTATIONS", found)


def engine(monkeypatch, way):
    """Put a bad engine in the place of `ansor`."""
    monkeypatch.setattr(registry, "ENGINES", {**registry.ENGINES, "ansor": lambda _: Engine(way)})
