"""The results of *tasks*, *tune* and *build* together, read once for the gates and for the lock."""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.tuning import TuningResult
from autopipe.store.artifact import Artifact
from autopipe.tasks.task import Task, read_tasks


class BuildResults(NamedTuple):
    """The contents of the artifacts that describe a build."""

    tasks: tuple[Task, ...]
    tuning: TuningResult | None
    """None where nothing was tuned."""
    library: BuiltLibrary


def read_build_results(artifacts: Mapping[str, Artifact]) -> BuildResults:
    """Read the results of a run that built a library. Raises OSError and MalformedError."""
    return _read(artifacts["tasks"], artifacts.get("tune"), artifacts["build"])


@lru_cache(maxsize=1)  # an artifact is named by its content, so this one cannot be stale
def _read(tasks: Artifact, tune: Artifact | None, build: Artifact) -> BuildResults:
    return BuildResults(
        read_tasks(tasks.path),
        None if tune is None else TuningResult.read(tune.path),
        BuiltLibrary.read(build.path),
    )
