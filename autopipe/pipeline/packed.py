"""Serialize a stage and its context as JSON, and run it from that in another process."""

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from autopipe.environment.facet import Facet
from autopipe.errors import AutopipeError, ConfigError, StageError, StoreError
from autopipe.host import refusal
from autopipe.host.memory import describe_memory_limit
from autopipe.pipeline.events import Emit
from autopipe.pipeline.stage import Context, Diagnostics, Stage
from autopipe.pipeline.zygote import MEANWHILE
from autopipe.processes.bounds import ceiling, hold


def pack_stage(stage: Stage, ctx: Context) -> dict[str, Any]:
    """Serialize a stage and its context as JSON.

    Raises ConfigError for a file name that is not UTF-8.
    """
    try:
        params = stage.model_dump_json()
    except ValueError as error:
        paths = ", ".join(ascii(str(path)) for path in stage.sources().values())
        raise ConfigError(f"stage {stage.name!r}: {paths}: a name that is not UTF-8") from error
    return {
        "stage": f"{type(stage).__module__}:{type(stage).__qualname__}",
        "params": params,
        MEANWHILE: stage.imported_meanwhile,
        "inputs": {name: os.fspath(path) for name, path in ctx.inputs.items()},
        "facts": {facet.value: dict(facts) for facet, facts in ctx.facts.items()},
        **{name: os.fspath(getattr(ctx, name)) for name in ("out", "work", "records")},
        "forced": ctx.forced,
        "diagnostics": {
            "ir_folder": ctx.diagnostics.ir_folder and os.fspath(ctx.diagnostics.ir_folder),
            "pass_times": ctx.diagnostics.pass_times,
            "verbosity": ctx.diagnostics.verbosity,
        },
    }


def run_packed_stage(argument: Mapping[str, Any], emit: Emit) -> str:
    """Run a packed stage; called in the child."""
    module, _, name = argument["stage"].partition(":")
    kind: type[Stage] = getattr(import_module(module), name)
    stage = kind.model_validate_json(argument["params"])
    ctx = Context(
        inputs={name: Path(path) for name, path in argument["inputs"].items()},
        facts={Facet(name): facts for name, facts in argument["facts"].items()},
        out=Path(argument["out"]),
        work=Path(argument["work"]),
        records=Path(argument["records"]),
        emit=emit,
        forced=argument["forced"],
        diagnostics=_parse_diagnostics(**argument["diagnostics"]),
    )
    from autopipe.pipeline.logs import forward_logs  # only a child logs

    limit = hold(ceiling())
    try:
        with forward_logs(emit, stage.name, ctx.diagnostics.verbosity):
            return stage.run(ctx)
    except Exception as error:
        converted = _to_memory_error(error, limit) or _to_store_error(error, ctx)
        if converted is error:
            raise
        raise converted from error


def _parse_diagnostics(ir_folder: str | None, *, pass_times: bool, verbosity: int) -> Diagnostics:
    folder = None if ir_folder is None else Path(ir_folder)
    return Diagnostics(folder, pass_times, verbosity)


def _to_memory_error(error: Exception, limit: int) -> StageError | None:
    """Convert an error due to refused memory; None for other errors."""
    text = str(error)  # an error of the child about its own memory is complete
    is_memory_refusal = (
        type(error) is StageError
        and refusal.OUT_OF_MEMORY not in text
        and refusal.explain_memory_refusal(text)
    )
    if not is_memory_refusal and (
        isinstance(error, AutopipeError) or not refusal.explain_memory_error(error)
    ):
        return None
    return StageError(
        f"{refusal.OUT_OF_MEMORY}: it needs more than the {limit >> 20} MiB that a stage may take "
        f"here; {describe_memory_limit()}"
    )


def _to_store_error(error: Exception, ctx: Context) -> Exception:
    """Convert an error due to a full or deleted store; return other errors unchanged."""
    if isinstance(error, StageError):
        return refusal.to_refusal_error(error, ctx.out) or error
    if isinstance(error, AutopipeError):
        return error
    for folder in (ctx.out, ctx.work):
        if not folder.is_dir():
            return StoreError(f"{folder}: deleted while a stage used it")
    return refusal.to_store_error(error, ctx.out) or error
