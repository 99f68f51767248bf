"""Find and check the builds of pipeline files and folders before any of them runs."""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from autopipe.api import cross
from autopipe.config.load import load_builds
from autopipe.config.pipeline import Pipeline
from autopipe.config.target import Target
from autopipe.errors import ConfigError
from autopipe.lock.recognize import lock_of
from autopipe.pipeline.plan import Plan, build_plan, check_forced
from autopipe.pipeline.stage import Stage
from autopipe.stages import stages_of

_PIPELINES: Final = "*.yaml"
"""The pipeline files of a folder."""


class PlannedBuild(NamedTuple):
    """One build of a pipeline file."""

    file: Path
    name: str | None = None
    """Its name in section `builds`; None where the file has no such section."""
    pipeline: Pipeline | None = None
    """None for an invalid file; running it reports the error."""

    @property
    def label(self) -> str:
        """Return the name of its pipeline."""
        return self.pipeline.name if self.pipeline else self.file.stem

    @property
    def target(self) -> str:
        """Describe its target as the file states it."""
        return _describe_target(self.pipeline.target if self.pipeline else Target())

    def __str__(self) -> str:
        """Return its place in the pipeline file."""
        return str(self.file) if self.name is None else f"{self.file}: builds.{self.name}"


def find_builds(
    paths: Sequence[Path], *, overrides: Sequence[str] = (), only: Sequence[str] = ()
) -> tuple[PlannedBuild, ...]:
    """List the builds of pipeline files and folders in order; `only` selects some by name.

    Raises ConfigError with all mistakes of all files; those of a single file its run reports.
    """
    builds: list[PlannedBuild] = []
    mistakes = []
    for file in list_files(paths):
        try:
            pipelines = load_builds(file, overrides)
        except ConfigError as error:
            mistakes.append(str(error))
        else:
            builds += [PlannedBuild(file, name, pipeline) for name, pipeline in pipelines.items()]
    if mistakes and len(paths) == 1 and not _is_folder(paths[0]):
        return (PlannedBuild(paths[0], only[0] if only else None),)
    _raise_mistakes(mistakes)
    return _select_builds(builds, only)


def wire_stages(
    file: Path, pipeline: Pipeline, *, until: str | None = None, force: Collection[str] = ()
) -> tuple[tuple[Stage, ...], Plan]:
    """Create the stages of a pipeline, and plan the requested ones.

    Raises ConfigError for mistakes that can be detected without the store.
    """
    stages = stages_of(pipeline, file.absolute().parent)
    plan = build_plan(stages, until=until)
    check_forced(force, stages, plan)
    cross.check_linker(pipeline.target, plan, pipeline.target.mtriple)
    return stages, plan


def check_file(file: Path) -> None:
    """Read a pipeline file and wire the stages of its builds.

    Raises ConfigError with all that is wrong.
    """
    pipelines = load_builds(file)
    mistakes = _list_mistakes(PlannedBuild(file, *pair) for pair in pipelines.items())
    _raise_mistakes(
        str(error) if build.name is None else f"{build}: {error}" for build, error in mistakes
    )


def check_builds(
    builds: Sequence[PlannedBuild],
    output: Path,
    *,
    until: str | None = None,
    force: Collection[str] = (),
) -> None:
    """Raise ConfigError for builds that cannot run, or that would write the same file."""
    mistakes = [f"{build}: {error}" for build, error in _list_mistakes(builds, until, force)]
    _raise_mistakes([*mistakes, *_list_clashes(builds, output)])


def _describe_target(target: Target) -> str:
    """Describe the processor or GPU of a target in a word or two."""
    if target.kind != "llvm":
        return f"{target.kind} {target.arch or 'native'}"
    return " ".join([target.mcpu, *(target.mtriple or "").split("-")[:1]]).strip()


def _raise_mistakes(mistakes: Iterable[str]) -> None:
    if message := "\n".join(mistakes):
        raise ConfigError(message)


def list_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield pipeline files, each once; a folder stands for the files in it."""
    visited_paths: set[str] = set()
    for path in paths:
        for file in _list_pipeline_files(path) if _is_folder(path) else (path,):
            place = os.path.normpath(file.absolute())
            if place not in visited_paths:
                visited_paths.add(place)
                yield file


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # such as a name that is too long, which opening it reports
        return False


def _list_pipeline_files(folder: Path) -> list[Path]:
    files = sorted(folder.glob(_PIPELINES))
    if not files:
        raise ConfigError(f"{folder}: a folder without pipeline files ({_PIPELINES})")
    return files


def _select_builds(builds: Sequence[PlannedBuild], only: Sequence[str]) -> tuple[PlannedBuild, ...]:
    names = [build.name for build in builds if build.name is not None]
    for name in only:
        if name not in names:
            known_names = ", ".join(dict.fromkeys(names)) or "none"
            raise ConfigError(f"--build {name}: no such build; there is {known_names}")
    return tuple(build for build in builds if not only or build.name in only)


def _list_mistakes(
    builds: Iterable[PlannedBuild], until: str | None = None, force: Collection[str] = ()
) -> Iterator[tuple[PlannedBuild, ConfigError]]:
    """Yield the mistakes that can be detected before the store is opened."""
    for build in builds:
        assert build.pipeline is not None  # noqa: S101 - of a single file only
        try:
            wire_stages(build.file, build.pipeline, until=until, force=force)
        except ConfigError as error:
            yield build, error


def _list_clashes(builds: Iterable[PlannedBuild], output: Path) -> Iterator[str]:
    """Yield the packages and locks that more than one build would write."""
    writers: dict[Path, list[PlannedBuild]] = defaultdict(list)
    for build in builds:
        if build.pipeline is not None and build.pipeline.package is not None:
            writers[output / f"{build.label}.tar"].append(build)
        writers[lock_of(build.file, build.name)].append(build)
    for path, writing in writers.items():
        if len(writing) > 1:
            which = " and of ".join(map(str, writing))
            yield f"{path} would be of {which}: give each another `name`"
