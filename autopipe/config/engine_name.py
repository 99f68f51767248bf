"""Names of engines: ours, and those that installed packages register."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticKnownError

OURS: Final = (
    "ansor",
    "autotvm",
)
"""The engines of autopipe; `autopipe.schedules.engines.registry` creates them."""


def _check_engine_name(name: str) -> str:
    if name in OURS:
        return name
    from autopipe import extensions

    registered_names = [
        entry.name for entry in extensions.installed() if entry.group == extensions.ENGINES
    ]
    if name not in registered_names:
        expected_names = " or ".join(repr(name) for name in (*OURS, *registered_names))
        raise PydanticKnownError("literal_error", {"expected": expected_names})
    return name


EngineName = Annotated[str, AfterValidator(_check_engine_name), Field(examples=list(OURS))]
"""One of `OURS`, or the name of an installed entry point of the group `autopipe.engines`."""
