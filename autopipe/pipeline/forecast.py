"""What a run would do, without running anything."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from autopipe.pipeline.canonical import Document, digest
from autopipe.pipeline.environment import Environment
from autopipe.pipeline.explain import why
from autopipe.pipeline.keys import action
from autopipe.pipeline.plan import Plan, Step
from autopipe.pipeline.store import Store


@dataclass(frozen=True, slots=True)
class Outlook:
    """What would happen to one stage."""

    stage: str
    state: Literal["cached", "run"]
    why: tuple[str, ...]
    key: str | None
    """None while an input is not made, or the environment not examined."""
    action: Document | None
    """The action, with None for each input that is not made; None without the environment."""


def forecast(
    plan: Plan,
    store: Store,
    environment: Environment,
    *,
    force: Collection[str] = (),
    warn: Callable[[str], None],
) -> tuple[Outlook, ...]:
    """Look every step up as a run would; what comes after a miss is not known before it ran."""
    made: dict[str, str | None] = {}
    outlooks = []
    for step in plan.steps:
        outlook, made[step.name] = _look(step, made, store, environment, step.name in force, warn)
        outlooks.append(outlook)
    return tuple(outlooks)


def _look(  # noqa: PLR0913, PLR0917 -- the loop above, one turn
    step: Step,
    made: dict[str, str | None],
    store: Store,
    environment: Environment,
    forced: bool,  # noqa: FBT001
    warn: Callable[[str], None],
) -> tuple[Outlook, str | None]:
    stage = step.stage
    facts = environment.known(stage.reads)
    if facts is None:
        return Outlook(step.name, "run", ("the environment is not examined yet",), None, None), None
    inputs = {name: made[name] for name in step.needs}
    document = action(stage, inputs, facts, store.contents)
    waits = tuple(f"after {name}" for name, made_ in inputs.items() if made_ is None)
    key = None if waits else digest(document)
    reasons = waits
    if forced:
        reasons = ("forced",)
    elif not stage.cached:
        reasons = ("runs every time",)
    elif key is not None:
        hit = store.lookup(key, warn)
        if hit is not None:
            return Outlook(step.name, "cached", (), key, document), hit.digest
    if not reasons or waits:
        changed = why(store, document)
        reasons += tuple(text for text in changed if not waits or ":" in text)
    return Outlook(step.name, "run", reasons, key, document), None
