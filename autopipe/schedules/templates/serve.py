"""Finds the template of a function: the first one that serves it."""

import logging
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeVar

import tvm
from tvm.s_tir import Schedule, ScheduleError

from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.templates.template import Template, asked_last, fitting

_LOG: Final = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

Complaint = Callable[[Template, Exception], None]
"""Called with a template and the unexpected error that it raised."""


@dataclass(frozen=True, slots=True)
class Served:
    """A function with its template and first schedule."""

    template: Template
    found: Any
    """What `template.match` returned for the function."""
    knobs: Any
    """The setting that `template.fill` returned."""
    schedule: Schedule
    """The schedule of that setting."""


def _logged(template: Template, _error: Exception) -> None:
    _LOG.exception("template %s failed", template.NAME)


_COMPLAINT: Final[ContextVar[Complaint]] = ContextVar("complaint", default=_logged)


def serve(
    module: tvm.IRModule, hardware: HardwareParams, failed: Complaint = _logged
) -> Served | None:
    """Return the first template that serves `main` of a module, or None if none does.

    A backend may have no templates. A template whose schedule TVM refuses passes the function on.
    If it raises another error, `failed` is called, and the next template is asked.
    """
    first = hardware.backend.templates()
    later: list[Template] = []
    fresh: tuple[Schedule, Callable[[Template], Any]] | None = None

    def schedule(template: Template) -> Served | None:
        nonlocal fresh
        sch, matched = fresh = fresh or fitting(module)
        found = matched(template)
        if found is None:
            return None
        if template not in later and asked_last(template, found):
            later.append(template)
            return None
        fresh = None  # it may be half scheduled when TVM refuses
        knobs = template.fill(found, hardware)
        template.apply(sch, found, knobs)
        return Served(template, found, knobs, sch)

    before = _COMPLAINT.set(failed)
    try:
        answers = (attempt(template, schedule) for template in chain(first, later))
        return next((served for served in answers if served is not None), None)
    finally:
        _COMPLAINT.reset(before)


def attempt(template: Template, act: Callable[[Template], _Answer]) -> _Answer | None:
    """Return the result of asking a template, or None if TVM refuses or the template fails.

    A failure is reported to who asked `serve`.
    """
    try:
        return act(template)
    except ScheduleError:  # TIR without blocks, or a schedule that TVM refuses
        return None
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it raises
        _COMPLAINT.get()(template, error)
        return None
