"""Templates, one file a family of functions: the schedule, readable beside its knobs."""

from typing import Final

from autopipe import extensions
from autopipe.schedules.templates import (
    contraction,
    dot_product,
    elementwise,
    library_call,
    row_reduction,
    sequence,
    transpose,
    window,
    winograd,
)
from autopipe.schedules.templates.template import Template

TEMPLATES: Final[tuple[Template, ...]] = (
    library_call,
    dot_product,
    window,
    winograd,
    contraction,
    row_reduction,
    transpose,
    elementwise,
    sequence,
)
"""Asked in this order; the first that serves a function schedules it."""


def templates() -> tuple[Template, ...]:
    """Return those that other packages register, then ours, in the order they are asked.

    Raises SetupError if an extension is broken.
    """
    own = {template.NAME for template in TEMPLATES}
    found = extensions.registered(extensions.TEMPLATES, own)
    return (*(each.load() for each in found.values()), *TEMPLATES)
