"""Check pipeline files for a target of another architecture, before any stage runs.

Its code is compiled here and linked by a cross linker, but cannot run here: stages that time or
compare code have to be switched off, or to be in the store already.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from autopipe.config.target import Target
from autopipe.environment.toolchain import find_architecture, is_foreign, require_linker
from autopipe.errors import ConfigError
from autopipe.pipeline.plan import Plan
from autopipe.pipeline.stage import Stage
from autopipe.stages.benchmark import BenchmarkStage
from autopipe.stages.build import BuildStage
from autopipe.stages.tune import TuneStage
from autopipe.stages.verify import VerifyStage

if TYPE_CHECKING:
    from autopipe.pipeline.forecast import Outlook

_RUNS: Final[Mapping[type[Stage], tuple[str, str]]] = {
    TuneStage: ("tuning", "timed"),
    VerifyStage: ("verify", "run"),
    BenchmarkStage: ("benchmark", "timed"),
}
"""The stages that run code, with their sections of the pipeline file and a verb for messages."""


def check_linker(target: Target, plan: Plan, triple: str | None) -> None:
    """Raise ConfigError if a library is built for a foreign triple without a linker."""
    builds = any(isinstance(step.stage, BuildStage) for step in plan)
    if builds and target.linker is None and triple is not None and is_foreign(triple):
        likely = triple.replace("-unknown-", "-")
        raise ConfigError(
            f"target.linker: null, but the target {triple} is not this machine "
            f"({find_architecture(None)}): name a compiler that links for it, such as {likely}-gcc"
        )


def check_compiler(target: Target, plan: Plan) -> None:
    """Raise SetupError if a library is built and this machine has no compiler to link it."""
    builds = any(isinstance(step.stage, BuildStage) for step in plan)
    if builds and target.linker is None:
        require_linker()


def check_stages(plan: Plan, outlooks: "Iterable[Outlook]", triple: str) -> None:
    """Raise ConfigError with a line for each stage that would have to run foreign code."""
    runs = {outlook.stage for outlook in outlooks if outlook.state == "run"}
    if lines := list(_list_impossible_stages(plan, runs, find_architecture(triple))):
        raise ConfigError("\n".join(lines))


def explain_unverified(plan: Plan, triple: str) -> str | None:
    """Return a warning for a build that is not verified because its code cannot run here."""
    builds = any(isinstance(step.stage, BuildStage) for step in plan)
    verified = any(isinstance(step.stage, VerifyStage) for step in plan)
    if verified or not (builds and is_foreign(triple)):
        return None
    return (
        f"not done: code for {find_architecture(triple)} does not run on this machine"
        f" ({find_architecture(None)}), so that the package is compared with nothing; the "
        "self-test of"
        " its exported folder does that there"
    )


def _list_impossible_stages(plan: Plan, runs: set[str], machine: str) -> Iterator[str]:
    for step in plan:
        section, verb = _RUNS.get(type(step.stage), ("", ""))
        if section and step.name in runs and not _is_run_elsewhere(step.stage):
            device = ", or name a device (`tuning.measure`)" if section == "tuning" else ""
            yield (
                f"{section}: code for {machine} cannot be {verb} on this machine "
                f"({find_architecture(None)}): write `{section}: null`{device}"
            )


def _is_run_elsewhere(stage: Stage) -> bool:
    """Whether a stage runs its code on other machines."""
    return isinstance(stage, TuneStage) and stage.tuning.measure.runner != "local"
