"""Watch the passes that a stage runs, where the user wants to see them."""

from collections.abc import Iterator
from contextlib import contextmanager

from autopipe.pipeline.events import PassTime, PassTimes
from autopipe.pipeline.stage import Context


@contextmanager
def show_passes(ctx: Context, stage: str) -> Iterator[None]:
    """Write the module after each pass, and report pass times, as `ctx.diagnostics` asks."""
    if not ctx.diagnostics.shows_passes:
        yield
        return
    from autopipe.compiler.pass_observer import observe_passes

    folder = ctx.diagnostics.ir_folder
    with observe_passes(None if folder is None else folder / stage) as observer:
        yield
    if ctx.diagnostics.pass_times:
        times = tuple(
            PassTime(name=one.name, runs=one.runs, seconds=one.seconds)
            for one in observer.times.values()
        )
        ctx.emit(PassTimes(stage=stage, passes=times))
