"""Several builds in one run: those of one pipeline file, of several, or of a folder of them."""

import time
from collections.abc import Callable, Sequence

from autopipe.api.builds import PlannedBuild
from autopipe.artifacts.benchmark import BenchmarkReport
from autopipe.pipeline.events import (
    BuildResult,
    BuildsFinished,
    BuildStarted,
    Emit,
    Event,
    Measured,
    RunFinished,
)
from autopipe.processes.interrupt import find_exit_code
from autopipe.report.wording import describe_error


def run_builds(
    builds: Sequence[PlannedBuild],
    run: Callable[[PlannedBuild, Emit], object],
    emit: Emit,
    failed: Callable[[PlannedBuild, Exception], None],
) -> int:
    """Run builds in sequence, even after failures; return the largest exit code.

    `failed` receives the exception of a build. A signal ends all of them.
    """
    start, code = time.monotonic(), 0
    watches = [_Watch(build, emit) for build in builds]
    try:
        for number, watch in enumerate(watches, 1):
            watch.start(number, len(watches))
            try:
                run(watch.build, watch)
            except Exception as error:  # noqa: BLE001 -- the others are run all the same
                watch.fail(error)
                failed(watch.build, error)
            except BaseException as error:
                watch.fail(error)
                raise
    except BaseException as error:
        code = find_exit_code(error)
        raise
    finally:
        results = tuple(watch.result for watch in watches)
        code = max(code, *(result.exit_code or 0 for result in results))
        emit(BuildsFinished(exit_code=code, seconds=time.monotonic() - start, builds=results))
    return code


class _Watch:
    """Forwards the events of a build with its name, and summarizes them."""

    def __init__(self, build: PlannedBuild, emit: Emit) -> None:
        self.build = build
        self.result = BuildResult(
            build=build.label, file=str(build.file), target=build.target, result="not_run"
        )
        self._emit = emit

    def start(self, number: int, total: int) -> None:
        """Emit the start of the build."""
        of = {"file": self.result.file, "target": self.result.target}
        self(BuildStarted(**of, number=number, total=total))

    def __call__(self, event: Event, /) -> None:
        """Forward an event of the build."""
        match event:
            case Measured(document=document):
                self._note_ratio(BenchmarkReport.model_validate(document))
            case RunFinished(exit_code=code):
                copied_fields = {
                    name: getattr(event, name) for name in ("seconds", "package", "lock")
                }
                self._update_result(
                    **copied_fields,
                    error=event.error,
                    exit_code=code,
                    result=_describe_outcome(code),
                )
            case _:
                pass
        self._emit(event.model_copy(update={"build": self.build.label}))

    def fail(self, error: BaseException) -> None:
        """Record the exception of the build."""
        code = find_exit_code(error)
        text = describe_error(error)
        self._update_result(exit_code=code, result=_describe_outcome(code), error=text)

    def _note_ratio(self, benchmark: BenchmarkReport) -> None:
        competitor = benchmark.counted_competitor
        if competitor is not None:
            self._update_result(
                competitor=competitor, ratio=benchmark.comparisons[competitor].ratio
            )

    def _update_result(self, **fields: object) -> None:
        self.result = self.result.model_copy(update=fields)


def _describe_outcome(code: int) -> str:
    if code == 0:
        return "done"
    return "interrupted" if code > 128 else "failed"  # noqa: PLR2004 -- 128 and the signal
