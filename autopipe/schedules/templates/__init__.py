"""Templates: schedules with knobs, one file for each family of functions.

Engine `static` fills the knobs without measuring, engine `autotvm` searches them. `template.py`
has the interface of a template, `serve.py` selects the template of a function.
"""

from typing import Final

from autopipe import extensions
from autopipe.schedules.templates.attention import ATTENTION
from autopipe.schedules.templates.by_hand import BY_HAND
from autopipe.schedules.templates.contraction import CONTRACTION
from autopipe.schedules.templates.dot_product import DOT_PRODUCT
from autopipe.schedules.templates.elementwise import ELEMENTWISE
from autopipe.schedules.templates.library_call import LIBRARY_CALL
from autopipe.schedules.templates.long_rows import LONG_ROWS
from autopipe.schedules.templates.recurrence import RECURRENCE
from autopipe.schedules.templates.reduction import REDUCTION
from autopipe.schedules.templates.regions import REGIONS
from autopipe.schedules.templates.rolling import ROLLING
from autopipe.schedules.templates.rows import ROWS
from autopipe.schedules.templates.sequence import SEQUENCE
from autopipe.schedules.templates.template import AnyTemplate
from autopipe.schedules.templates.tile_product import TILE_PRODUCT
from autopipe.schedules.templates.transpose import TRANSPOSE
from autopipe.schedules.templates.window import WINDOW
from autopipe.schedules.templates.winograd import WINOGRAD

TEMPLATES: Final[tuple[AnyTemplate, ...]] = (
    RECURRENCE,  # by an attribute and its reference loops; no other template serves a layer
    REGIONS,  # by an attribute; `contraction` takes maxima of regions one by one
    ATTENTION,  # by an attribute; `sequence` would write all scores to memory
    LIBRARY_CALL,  # by an attribute; `sequence` would cut what is fused around the call
    LONG_ROWS,  # threads share a row that `rows` and `reduction` leave to one
    TILE_PRODUCT,  # AMX does 16 rows at once; refuses where `dot_product` is faster
    DOT_PRODUCT,  # adds 2 or 4 products at once, `contraction` one
    WINDOW,  # windows share a row of input in registers; `contraction` reads it for each
    WINOGRAD,  # alone: no other template serves its stages
    CONTRACTION,  # tiles in registers; the reductions below read operands for each output
    ROWS,  # does a row while it is in the cache; `reduction` does one block at a time
    TRANSPOSE,  # blocks in registers; `elementwise` would read a line for each element
    ELEMENTWISE,  # all other functions that reduce nothing
    REDUCTION,  # any single reduction that the templates above leave
    ROLLING,  # keeps rows in the cache that `sequence` passes through memory
    BY_HAND,  # alone: its functions have loops and no blocks to schedule
    SEQUENCE,  # last: serves by parts what no template serves as a whole
)
"""Tried in this order; the first that serves a function schedules it. Each comment states why the
template precedes those below that serve some of the same functions.

A fixed order does not suffice where the faster of two templates depends on the function: of those
in `benchmarks/computes.py` and the pipelines that `window` and `contraction` both serve, windows
are faster for half. `is_asked_last` marks the functions for which other templates are faster.
"""


def list_templates() -> tuple[AnyTemplate, ...]:
    """List the templates of other packages, then ours, in the order they are tried.

    Raises SetupError if an extension is broken.
    """
    own_names = {template.name for template in TEMPLATES}
    registered = extensions.list_registered(extensions.TEMPLATES, own_names)
    return (*(extension.load() for extension in registered.values()), *TEMPLATES)
