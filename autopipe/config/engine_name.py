"""Names of engines: ours, and those that installed packages register."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticKnownError

OURS: Final = (
    "ansor",
    "autotvm",
)
"""The engines that are part of autopipe; `autopipe.schedules.engines.registry` makes them."""


def _check_engine_name(name: str) -> str:
    if name in OURS:
        return name
    from autopipe import extensions

    registered = [
        entry.name for entry in extensions.installed() if entry.group == extensions.ENGINES
    ]
    if name not in registered:
        known = " or ".join(repr(name) for name in (*OURS, *registered))
        raise PydanticKnownError("literal_error", {"expected": known})
    return name


EngineName = Annotated[str, AfterValidator(_check_engine_name), Field(examples=list(OURS))]
"""One of `OURS`, or the name of an installed entry point of the group `autopipe.engines`."""
