"""Template for functions of several reductions: each part by the template that serves it.

No anchor is chosen: a function is cut between its blocks, into the longest parts that some template
serves, and their schedules follow each other. What is between two parts goes through memory; to
compute one inside the loops of another is left to sketch search.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm.s_tir import Schedule

from autopipe.schedules.analysis.steps import Steps
from autopipe.schedules.hardware import Hardware
from autopipe.schedules.templates.template import Template, blank

NAME: Final = "sequence"
VERSION: Final = 1

_LEAST: Final = 2
"""Reductions of a function that is worth cutting."""

_MOST: Final = 24
"""Blocks of a function that is cut; the parts tried grow with the square."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a function, and who serves it."""

    module: tvm.IRModule
    template: Template
    found: Any
    """What `template.match` says of the part."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A function that the template serves."""

    steps: Steps
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """The knobs of one part."""

    template: str
    version: int
    knobs: Any
    """Those of the template."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The knobs."""

    parts: tuple[Setting, ...]


def match(sch: Schedule) -> Parts | None:
    """Return the parts of a function, or None if a part is left that no template serves."""
    steps = Steps.of(sch.mod["main"])
    if steps is None or steps.reductions < _LEAST or len(steps.blocks) > _MOST:
        return None
    parts: list[Part] = []
    start = 0
    while start < len(steps.blocks):
        for end in range(len(steps.blocks), start, -1):
            part = _serve(steps.part(start, end)) if steps.closed(start, end) else None
            if part is not None:
                parts.append(part)
                start = end
                break
        else:
            return None
    return Parts(steps, tuple(parts)) if len(parts) > 1 else None


def settings(found: Parts, hardware: Hardware) -> Iterator[Settings]:
    """Yield the one setting there is: what to do with all parts at once, a search has to find."""
    yield fill(found, hardware)


def fill(found: Parts, hardware: Hardware) -> Settings:
    """Return the knobs that each part's template takes without measuring."""
    return Settings(
        tuple(
            Setting(
                part.template.NAME, part.template.VERSION, part.template.fill(part.found, hardware)
            )
            for part in found.parts
        )
    )


def apply(sch: Schedule, found: Parts, knobs: Settings) -> None:
    """Schedule the function. Raises ScheduleError where TVM refuses."""
    done = []
    for part, setting in zip(found.parts, knobs.parts, strict=True):
        schedule = blank(part.module)
        part.template.apply(schedule, part.found, setting.knobs)
        done.append(schedule.mod)
    sch.state.replace(sch.get_sref(sch.get_sblock("root")), found.steps.join(done))


def _serve(module: tvm.IRModule) -> Part | None:
    from autopipe.schedules.templates import templates  # this file is one of them

    for template in templates():
        if template.NAME == NAME:
            continue
        try:
            found = template.match(blank(module))
        except RuntimeError:  # TIR that a template does not expect
            continue
        if found is not None:
            return Part(module, template, found)
    return None
