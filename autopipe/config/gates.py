"""Section `gates`: what a build must reach to be published."""

from typing import Annotated, Literal

from pydantic import Field

from autopipe.config.frozen import Frozen


class Gates(Frozen, frozen=True):
    """Conditions that end the run with exit code 1 when they are not met."""

    tuned_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Least share of the kept tasks' work, in FLOPs, that is built with a measured schedule."""
    max_slowdown: dict[Literal["onnxruntime"], Annotated[float, Field(gt=0)]] = {}
    """Largest latency relative to a rival. An inconclusive comparison does not fail."""
