"""A plan: the steps in the order they will run, every input resolved and checked."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from autopipe.config.suggestion import suggest_name
from autopipe.errors import ConfigError
from autopipe.pipeline.stage import Stage


class Step(NamedTuple):
    """A stage, and which earlier stages its inputs come from."""

    stage: Stage
    needs: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the stage's name."""
        return self.stage.name


Plan = tuple[Step, ...]
"""A runnable pipeline. Building one is the last point at which wiring can be wrong."""


def build_plan(stages: Iterable[Stage], *, until: str | None = None) -> Plan:
    """Resolve the inputs of stages given in the order of the flow; `until` names the last one.

    Raises ConfigError where a stage needs one that is switched off, or of another kind.
    """
    steps: dict[str, Step] = {}
    for stage in stages:
        steps[stage.name] = Step(stage, _resolve_inputs(stage, steps))
    if until is not None:
        require_stages([until], steps, "--until")
        names = list(steps)
        return tuple(steps[name] for name in names[: names.index(until) + 1])
    return tuple(steps.values())


def require_stages(names: Iterable[str], stages: Collection[str], option: str) -> None:
    """Raise ConfigError, with a suggestion, unless every name is a stage of this pipeline."""
    for name in names:
        if name not in stages:
            hint = suggest_name(name, stages, f"its stages are {', '.join(stages)}")
            raise ConfigError(f"{option} {name}: no such stage in this pipeline{hint}")


def check_forced(names: Iterable[str], stages: Iterable[Stage], plan: Plan) -> None:
    """Raise ConfigError for a stage of `--force` that the pipeline or the plan does not have."""
    require_stages(names, [stage.name for stage in stages], "--force")
    planned_names = [step.name for step in plan]
    for name in names:
        if name not in planned_names:
            raise ConfigError(f"--force {name}: --until {planned_names[-1]} ends before that stage")


def _resolve_inputs(stage: Stage, earlier: dict[str, Step]) -> tuple[str, ...]:
    present = []
    for name, need in stage.needs.items():
        if name not in earlier:
            if need.optional:
                continue
            raise ConfigError(
                f"stage {stage.name!r} needs stage {name!r}, which this pipeline switches off"
            )
        produced_kind = earlier[name].stage.produces
        if produced_kind is not need.kind:
            raise ConfigError(
                f"stage {stage.name!r} takes a {need.kind} from {name!r}, "
                f"which makes a {produced_kind}"
            )
        present.append(name)
    return tuple(present)
