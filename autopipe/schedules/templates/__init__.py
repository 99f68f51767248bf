"""Templates: schedules with knobs, one file for each family of functions.

Engine `static` fills the knobs without measuring, engine `autotvm` searches them. `template.py`
says what a template has to define, `serve.py` picks the template of a function.
"""

from typing import Final

from autopipe import extensions
from autopipe.schedules.templates import (
    attention,
    by_hand,
    contraction,
    dot_product,
    elementwise,
    library_call,
    long_rows,
    nested,
    odd_rows,
    open_movement,
    open_rows,
    recurrence,
    reduction,
    regions,
    rolling,
    row_reduction,
    sequence,
    tile_product,
    tiled_reduction,
    transpose,
    turned,
    window,
    winograd,
)
from autopipe.schedules.templates.template import Template

TEMPLATES: Final[tuple[Template, ...]] = (
    recurrence,
    regions,
    attention,
    library_call,
    long_rows,
    tile_product,
    dot_product,
    window,
    winograd,
    contraction,
    tiled_reduction,
    odd_rows,
    row_reduction,
    open_rows,
    turned,
    transpose,
    nested,
    elementwise,
    open_movement,
    reduction,
    rolling,
    by_hand,
    sequence,
)
"""Asked in this order; the first that serves a function schedules it."""


def templates() -> tuple[Template, ...]:
    """Return the templates of other packages, then ours, in the order they are asked.

    Raises SetupError if an extension is broken.
    """
    own = {template.NAME for template in TEMPLATES}
    registered = extensions.registered(extensions.TEMPLATES, own)
    return (*(extension.load() for extension in registered.values()), *TEMPLATES)
