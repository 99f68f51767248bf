"""Templates, one file a family of functions: the schedule, readable beside its knobs."""

from typing import Final

from autopipe.schedules.template import Template
from autopipe.schedules.templates import contraction

TEMPLATES: Final[tuple[Template, ...]] = (contraction,)
"""Asked in this order; the first that serves a function schedules it."""
