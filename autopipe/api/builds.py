"""The builds of pipeline files and of folders of them, found and checked before any runs."""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autopipe.api.wiring import wire_stages
from autopipe.config.load import load_builds
from autopipe.config.pipeline import Pipeline
from autopipe.config.target import Target
from autopipe.errors import ConfigError
from autopipe.lock.paths import lock_of

_PIPELINES: Final = "*.yaml"
"""The pipeline files of a folder."""


@dataclass(frozen=True, slots=True)
class PlannedBuild:
    """One build: of a pipeline file that has several, or the only one of a file."""

    file: Path
    name: str | None = None
    """Its name in the file; null where the file has no builds."""
    pipeline: Pipeline | None = None
    """Null for a file that can not be read, which its run says."""

    @property
    def label(self) -> str:
        """Return the name of its pipeline."""
        return self.pipeline.name if self.pipeline else self.file.stem

    @property
    def target(self) -> str:
        """Return what it is compiled for, as the file says it."""
        return _describe_target(self.pipeline.target if self.pipeline else Target())

    def __str__(self) -> str:
        """Say where it is written."""
        return str(self.file) if self.name is None else f"{self.file}: builds.{self.name}"


def find_builds(
    paths: Sequence[Path], *, overrides: Sequence[str] = (), only: Sequence[str] = ()
) -> tuple[PlannedBuild, ...]:
    """Return the builds of pipeline files, and of those in folders, in order; `only` names some.

    Raises ConfigError with all mistakes of all files; of a single file its run tells them.
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


def check_file(file: Path) -> None:
    """Read a pipeline file and wire the stages of its builds.

    Raises ConfigError with all that is wrong.
    """
    pipelines = load_builds(file)
    found = _list_mistakes(PlannedBuild(file, *pair) for pair in pipelines.items())
    _raise_mistakes(
        str(error) if build.name is None else f"{build}: {error}" for build, error in found
    )


def check_builds(
    builds: Sequence[PlannedBuild],
    output: Path,
    *,
    until: str | None = None,
    force: Collection[str] = (),
) -> None:
    """Raise ConfigError, before any build runs, where one can not or two would write one file."""
    mistakes = [f"{build}: {error}" for build, error in _list_mistakes(builds, until, force)]
    _raise_mistakes([*mistakes, *_list_clashes(builds, output)])


def _describe_target(target: Target) -> str:
    """Return the processor or GPU of a target in a word or two."""
    if target.kind != "llvm":
        return f"{target.kind} {target.arch or 'native'}"
    return " ".join([target.mcpu, *(target.mtriple or "").split("-")[:1]]).strip()


def _raise_mistakes(mistakes: Iterable[str]) -> None:
    if told := "\n".join(mistakes):
        raise ConfigError(told)


def list_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield pipeline files, each once, with those of folders in the place of these."""
    known: set[str] = set()
    for path in paths:
        for file in _list_pipeline_files(path) if _is_folder(path) else (path,):
            place = os.path.normpath(file.absolute())
            if place not in known:
                known.add(place)
                yield file


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # such as a name that is too long, which is said when it is opened
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
            there = ", ".join(dict.fromkeys(names)) or "none"
            raise ConfigError(f"--build {name}: no such build; there is {there}")
    return tuple(build for build in builds if not only or build.name in only)


def _list_mistakes(
    builds: Iterable[PlannedBuild], until: str | None = None, force: Collection[str] = ()
) -> Iterator[tuple[PlannedBuild, ConfigError]]:
    """Yield what can be seen of builds before the store is opened."""
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
