"""Finds the template of a function: the first one that serves it."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, Generic, TypeVar

import tvm
from tvm.s_tir import Schedule, ScheduleError

from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.templates.template import AnyTemplate, Knobs, Match, Matcher, Template

_LOG: Final = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

Complaint = Callable[[AnyTemplate, Exception], None]
"""Called with a template and the unexpected error that it raised."""


@dataclass(frozen=True, slots=True)
class Served(Generic[Match, Knobs]):
    """A function with its template and first schedule."""

    template: Template[Match, Knobs]
    match: Match
    """The match of `template` for the function."""
    knobs: Knobs
    """The setting that `template.fill` returned."""
    schedule: Schedule
    """The schedule of that setting."""


AnyServed = Served[Any, Any]
"""A function with any template of the table."""


def _log_failure(template: AnyTemplate, _error: Exception) -> None:
    _LOG.exception("template %s failed", template.name)


_COMPLAINT: Final[ContextVar[Complaint]] = ContextVar("complaint", default=_log_failure)


def serve(
    module: tvm.IRModule, hardware: HardwareParams, report_failure: Complaint = _log_failure
) -> AnyServed | None:
    """Schedule `main` of a module by the first template that serves it; None if none does.

    A backend may have no templates. If TVM refuses the schedule of a template, the next one is
    tried; so, too, after any other error, which is passed to `report_failure`.
    """
    matcher = cache(lambda: Matcher.of(module))

    def schedule(template: Template[Match, Knobs], match: Match) -> Served[Match, Knobs]:
        sch = make_schedule(module)  # a new one: it may be half scheduled when TVM refuses
        knobs = template.fill(match, hardware)
        template.apply(sch, match, knobs)
        return Served(template, match, knobs, sch)

    before = _COMPLAINT.set(report_failure)
    try:
        pairs = find_matches(
            hardware.backend.templates(), lambda template: matcher().match(template)
        )
        for template, match in pairs:
            result = try_template(template, partial(schedule, match=match))
            if result is not None:
                return result
    finally:
        _COMPLAINT.reset(before)
    return None


def find_matches(
    templates: Iterable[AnyTemplate], match_function: Callable[[AnyTemplate], Any]
) -> Iterator[tuple[AnyTemplate, Any]]:
    """Yield the templates that serve a function and their matches, in the order they are tried.

    A template whose `is_asked_last` is true for this function comes after all others.
    """

    def ask(template: AnyTemplate) -> tuple[Any, bool] | None:
        match = match_function(template)
        return None if match is None else (match, template.is_asked_last(match))

    last_templates = []
    for template in templates:
        answer = try_template(template, ask)
        if answer is not None:
            match, last = answer
            if last:
                last_templates.append((template, match))
            else:
                yield template, match
    yield from last_templates


def try_template(template: AnyTemplate, act: Callable[[AnyTemplate], _Answer]) -> _Answer | None:
    """Return the result of `act`, or None if TVM refuses or the template fails.

    A failure is passed to the `report_failure` of the enclosing `serve`.
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
