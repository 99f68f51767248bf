"""Diagnostics of the passes that a stage runs: counts, modules after each pass, times."""

from collections.abc import Iterator
from contextlib import contextmanager

from autopipe.pipeline.counted import Watch
from autopipe.pipeline.events import PassTimes
from autopipe.pipeline.stage import Context


@contextmanager
def show_passes(ctx: Context, stage: str) -> Iterator[None]:
    """Count the steps, write the module after each pass, and report pass times.

    The latter two only if `ctx.diagnostics` enables them.
    """
    from autopipe.compiler.step_counter import count_with

    counting = count_with(Watch(stage, ctx.emit).count)
    if not ctx.diagnostics.shows_passes:
        with counting:
            yield
        return
    from autopipe.compiler.pass_observer import observe_passes

    folder = ctx.diagnostics.ir_folder
    with counting, observe_passes(None if folder is None else folder / stage) as observer:
        yield
    if ctx.diagnostics.pass_times:
        ctx.emit(PassTimes(stage=stage, passes=tuple(observer.times.values())))
