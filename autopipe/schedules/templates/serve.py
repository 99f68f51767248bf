"""Finds the template of a function: the first one that serves it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import tvm
from tvm.s_tir import Schedule

from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.templates.template import Template, asked_last, fitting

_LOG: Final = logging.getLogger(__name__)

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


def serve(
    module: tvm.IRModule, hardware: HardwareParams, failed: Complaint = _logged
) -> Served | None:
    """Return the first template that serves `main` of a module, or None if none does.

    A backend may have no templates. If a template raises an unexpected error,
    `failed` is called and the next template is asked.
    """
    templates = hardware.backend.piece("templates")
    first, fresh = tuple(templates()) if templates else (), None
    later: list[Template] = []
    for template in chain(first, later):
        try:
            sch, matched = fresh = fresh or fitting(module)
            found = matched(template)
            if found is not None and template not in later and asked_last(template, found):
                later.append(template)
            elif found is not None:
                fresh = None  # it may be half scheduled when TVM refuses
                knobs = template.fill(found, hardware)
                template.apply(sch, found, knobs)
                return Served(template, found, knobs, sch)
        except RuntimeError:  # TIR without blocks, or a schedule that TVM refuses
            continue
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it raises
            failed(template, error)
    return None
