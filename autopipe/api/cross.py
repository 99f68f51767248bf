"""What a target of another kind of machine asks of its pipeline file, said before work begins.

Its code is compiled here and linked by a linker for it. Nothing of it runs here: what times or
compares code has to be switched off, or to have been done before.
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
"""The stages that run code, with their sections of the pipeline file, and what they do to it."""


def check_linker(target: Target, plan: Plan, triple: str | None) -> None:
    """Raise ConfigError if a library is built for a triple that nobody can link."""
    builds = any(isinstance(step.stage, BuildStage) for step in plan.steps)
    if builds and target.linker is None and triple is not None and is_foreign(triple):
        likely = triple.replace("-unknown-", "-")
        raise ConfigError(
            f"target.linker: null, but the target {triple} is not this machine "
            f"({find_architecture(None)}): name a compiler that links for it, such as {likely}-gcc"
        )


def check_compiler(target: Target, plan: Plan) -> None:
    """Raise SetupError if a library is built and no compiler of this machine can link it."""
    builds = any(isinstance(step.stage, BuildStage) for step in plan.steps)
    if builds and target.linker is None:
        require_linker()


def check_stages(plan: Plan, outlooks: "Iterable[Outlook]", triple: str) -> None:
    """Raise ConfigError with a line for each stage that would have to run foreign code."""
    runs = {outlook.stage for outlook in outlooks if outlook.state == "run"}
    if lines := list(_list_impossible_stages(plan, runs, find_architecture(triple))):
        raise ConfigError("\n".join(lines))


def explain_unverified(plan: Plan, triple: str) -> str | None:
    """Say that a build is compared with nothing, if its code can not run here."""
    builds = any(isinstance(step.stage, BuildStage) for step in plan.steps)
    verified = any(isinstance(step.stage, VerifyStage) for step in plan.steps)
    if verified or not (builds and is_foreign(triple)):
        return None
    return (
        f"not done: code for {find_architecture(triple)} does not run on this machine"
        f" ({find_architecture(None)}), so that the package is compared with nothing; the "
        "self-test of"
        " its exported folder does that there"
    )


def _list_impossible_stages(plan: Plan, runs: set[str], machine: str) -> Iterator[str]:
    for step in plan.steps:
        section, done = _RUNS.get(type(step.stage), ("", ""))
        if section and step.name in runs and not _is_run_elsewhere(step.stage):
            device = ", or name a device (`tuning.measure`)" if section == "tuning" else ""
            yield (
                f"{section}: code for {machine} can not be {done} on this machine "
                f"({find_architecture(None)}): write `{section}: null`{device}"
            )


def _is_run_elsewhere(stage: Stage) -> bool:
    """Tell whether a stage has its code run by other machines."""
    return isinstance(stage, TuneStage) and stage.tuning.measure.runner != "local"
