"""Forecast the stages that a run would execute, without running anything."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from autopipe.environment.environment import Environment
from autopipe.pipeline import attempt
from autopipe.pipeline.explain import explain_skip, list_changes_since, name_action_kind
from autopipe.pipeline.history import History
from autopipe.pipeline.keys import build_action
from autopipe.pipeline.plan import Plan, Step
from autopipe.store.canonical import Document, digest_json
from autopipe.store.store import Store

NEVER: Final = "never run before"

_FEW: Final = 2
"""Stages that a reason names."""


class Outlook(NamedTuple):
    """The forecast of one stage."""

    stage: str
    state: Literal["cached", "skipped", "run"]
    why: tuple[str, ...]
    key: str | None
    """None while an input does not exist, or the environment is not examined."""
    action: Document | None
    """The action, with None for each missing input; None without the environment."""
    last: Literal["running", "interrupted", "failed"] | None = None
    """State of the last attempt, if there was one without a result."""


def forecast(
    plan: Plan,
    environment: Environment,
    history: History,
    *,
    force: Collection[str] = (),
    warn: Callable[[str], None],
) -> tuple[Outlook, ...]:
    """Look up the action of every step; after a miss, later actions are unknown until it ran.

    `history` holds the last run of this pipeline file.
    """
    store = history.store
    digests: dict[str, str | None] = {}
    outlooks = []
    for step in plan:
        document = _build_action(step, digests, store, environment)
        if document is None:
            reason = "the environment is not examined yet"
            outlook, digests[step.name] = Outlook(step.name, "run", (reason,), None, None), None
        elif step.name in force:
            outlook, digests[step.name] = _forecast_execution(step, document, store, "forced"), None
        else:
            outlook, digests[step.name] = _forecast_step(step, document, history, warn)
        outlooks.append(outlook)
    return tuple(outlooks)


def _build_action(
    step: Step, digests: Mapping[str, str | None], store: Store, environment: Environment
) -> Document | None:
    facts = environment.known(step.stage.reads)
    if facts is None:
        return None
    return build_action(
        step.stage, {name: digests[name] for name in step.needs}, facts, store.contents
    )


def _forecast_execution(step: Step, document: Document, store: Store, *why: str) -> Outlook:
    if None in document["inputs"].values():
        return Outlook(step.name, "run", why, None, document)
    key = digest_json(document)
    last = attempt.describe_last_attempt(store, step.name, key)
    if last is None:
        return Outlook(step.name, "run", why, key, document)
    other_reasons = why if why != (NEVER,) else ()
    return Outlook(step.name, "run", (last.description, *other_reasons), key, document, last.state)


def _forecast_reuse(step: Step, key: str, document: Document) -> Outlook:
    why = () if step.stage.cached else (explain_skip(step.name),)
    return Outlook(step.name, _name_reuse_state(step), why, key, document)


def _forecast_step(
    step: Step,
    document: Document,
    history: History,
    warn: Callable[[str], None],
) -> tuple[Outlook, str | None]:
    """Look one action up; return also the digest of its result, if there is one."""
    store = history.store
    unknown_inputs = [name for name, made in document["inputs"].items() if made is None]
    if not unknown_inputs:
        key = digest_json(document)
        hit = store.lookup(key, warn)
        if hit is not None:
            return _forecast_reuse(step, key, document), hit.digest
    changes = list_changes_since(history.last_action(name_action_kind(document)), document)
    if not unknown_inputs:
        changes = [NEVER] if changes is None else changes or ["its result is gone"]
    elif changes == []:
        changes = [f"if {_name_results(unknown_inputs)} changes, else {_name_reuse_state(step)}"]
    else:
        changes = [*(f"after {name}" for name in unknown_inputs), *(changes or ())]
    return _forecast_execution(step, document, store, *changes), None


def _name_results(stages: Sequence[str]) -> str:
    """Name the results of stages, or their number if there are many."""
    is_short = len(stages) <= _FEW
    return (
        f"the result of {' or '.join(stages)}" if is_short else f"one of its {len(stages)} inputs"
    )


def _name_reuse_state(step: Step) -> Literal["cached", "skipped"]:
    return "cached" if step.stage.cached else "skipped"
