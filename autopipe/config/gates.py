"""Section `gates`: what a build must reach to be published."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from autopipe.config.frozen import Frozen


def _relative(name: str) -> str:
    if name.startswith("/"):
        raise ValueError("a file of the project, relative to this YAML file")
    return name


class Regression(Frozen, frozen=True):
    """The build against an earlier one, whose times are checked in."""

    baseline: Annotated[str, Field(min_length=1), AfterValidator(_relative)]
    """File of the earlier times, relative to this YAML file; `autopipe baseline write` makes it."""
    max: Annotated[float, Field(gt=0, le=100)] = 1.05
    """Largest time relative to the baseline's. Leave room for how days differ on one machine."""
    on_inconclusive: Literal["warn", "fail"] = "warn"
    """What it ends in where the times do not tell: a warning, or exit code 1."""


class Gates(Frozen, frozen=True):
    """Conditions that end the run with exit code 1 when they are not met."""

    tuned_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Least share of the kept tasks' work, in FLOPs, that is built with a measured schedule."""
    max_slowdown: dict[Literal["onnxruntime"], Annotated[float, Field(gt=0)]] = {}
    """Largest latency relative to a rival. An inconclusive comparison does not fail."""
    regression: Regression | None = None
    """Largest slowdown since a checked-in baseline; needs three rounds of `benchmark` at least."""
