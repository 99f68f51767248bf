"""Section `gates`: conditions for the publication of a build."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from autopipe.config.benchmark import CompetitorName
from autopipe.config.frozen import Frozen

SHARES: Final = {
    "searched_share": "searched", "measured_share": "measured", "steady_share": "steady",
}  # fmt: skip
"""The kind of share that each gate on tuning checks."""


def _check_relative_path(name: str) -> str:
    if name.startswith("/"):
        raise ValueError("a file of the project, relative to this YAML file")
    return name


class Regression(Frozen, frozen=True):
    """The build against an earlier one with checked-in times."""

    baseline: Annotated[str, Field(min_length=1), AfterValidator(_check_relative_path)]
    """File of the earlier times, relative to this YAML file, from `autopipe baseline write`."""
    max: Annotated[float, Field(gt=0, le=100)] = 1.05
    """Largest time relative to the baseline's. Leave room for how days differ on one machine."""
    on_inconclusive: Literal["warn", "fail"] = "warn"
    """The result of inconclusive times: a warning, or exit code 1."""


class Gates(Frozen, frozen=True):
    """Conditions that end the run with exit code 1 when they are not met."""

    searched_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Least share of the kept tasks' time in tasks where an engine searched, or where the bound of
    the machine leaves too little to gain (`tuning.judge`). What a lock or a remote says counts for
    none of the shares."""
    measured_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Least share of that time in tasks with a schedule that this store has measured here."""
    steady_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Least share of that time in tasks with measurements that agree with each other."""
    max_slowdown: dict[Literal[CompetitorName, "best"], Annotated[float, Field(gt=0)]] = {}
    """Largest latency relative to a reference runtime, or to `best`, the fastest of those timed. An
    inconclusive comparison does not fail."""
    regression: Regression | None = None
    """Largest slowdown since a checked-in baseline; needs three rounds of `benchmark` at least."""

    def shares(self) -> dict[str, tuple[str, float]]:
        """Return the gates on tuning: by field, the kind of share and its least value."""
        limits = {name: getattr(self, name) for name in SHARES}
        return {name: (SHARES[name], limit) for name, limit in limits.items() if limit is not None}
