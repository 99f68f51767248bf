"""Names and versions of our schedule templates, for commands that import no TVM.

They are a fact in the keys of the stages that go by templates. The classes in
`autopipe/schedules/templates/` read the first number here, which is in the records of schedules.
"""

from collections.abc import Mapping
from typing import Final

from autopipe.errors import SetupError

TEMPLATE_VERSIONS: Final[Mapping[str, str]] = {
    "attention": "1.0",
    "by_hand": "2.0",
    "contraction": "2.8",
    "dot_product": "5.0",
    "elementwise": "10.0",
    "library_call": "1.0",
    "long_rows": "2.0",
    "recurrence": "6.2",
    "reduction": "5.0",
    "regions": "1.0",
    "rolling": "3.0",
    "rows": "3.0",
    "sequence": "3.0",
    "tile_product": "4.1",
    "transpose": "2.1",
    "window": "1.2",
    "winograd": "2.0",
}
"""Raise the first number of a template when the same knobs make another schedule: records of the
old one no longer count. Raise the second number when it serves other functions or fills other
knobs: records still count. Either way the stages run again."""


def schedule_version(name: str) -> int:
    """Return the version of the schedules that a template makes, as records state it.

    Raises SetupError for a template that is not in the table.
    """
    if name not in TEMPLATE_VERSIONS:
        raise SetupError(
            f"template {name} is not in autopipe/environment/template_versions.py;"
            " that of another package states a number, such as version = 1"
        )
    return int(TEMPLATE_VERSIONS[name].partition(".")[0])
