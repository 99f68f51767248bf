"""A stage and its context as JSON, and the stage run from that in another process."""

import errno
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from autopipe.errors import AutopipeError, StageError, StoreError
from autopipe.pipeline.events import Event
from autopipe.pipeline.hunger import hungry
from autopipe.pipeline.memory import ceiling, hold
from autopipe.pipeline.stage import Context, Facet, Stage

Emit = Callable[[Event], None]
Message = dict[str, Any]

ENTRY: Final = "autopipe.pipeline.packed:answer"
"""What a child is asked to call."""

_REFUSED: Final = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE,
    errno.EACCES, errno.EPERM,
}  # fmt: skip
"""What a disk, a limit or a permission says of any file; a stage can do nothing about it."""


def pack(stage: Stage, ctx: Context) -> Message:
    """Write a stage and its context down as JSON."""
    return {
        "stage": f"{type(stage).__module__}:{type(stage).__qualname__}",
        "params": stage.model_dump_json(),
        "inputs": {name: os.fspath(path) for name, path in ctx.inputs.items()},
        "facts": {facet.value: dict(facts) for facet, facts in ctx.facts.items()},
        **{name: os.fspath(getattr(ctx, name)) for name in ("out", "work", "records")},
        "forced": ctx.forced,
    }


def answer(argument: Mapping[str, Any], emit: Emit) -> str:
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
    )
    limit = hold(ceiling())
    try:
        return stage.run(ctx)
    except AutopipeError as error:
        if type(error) is StageError and hungry(str(error)):
            raise StageError(_needs(limit)) from error
        raise
    except Exception as error:
        if isinstance(error, MemoryError) or hungry(f"{type(error).__name__}: {error}"):
            raise StageError(_needs(limit)) from error
        raise _of_the_store(error, ctx) from error


def _needs(limit: int) -> str:
    return f"out of memory: it needs more than the {limit >> 20} MiB that a stage may take here"


def _of_the_store(error: Exception, ctx: Context) -> Exception:
    """Return the error, or what it is where the store is full or was deleted meanwhile."""
    for folder in (ctx.out, ctx.work):
        if not folder.is_dir():
            return StoreError(f"{folder}: deleted while a stage used it")
    if isinstance(error, OSError) and error.errno in _REFUSED:
        return StoreError(f"{error.filename or ctx.out}: {error.strerror}")
    return error
