"""Profile a package, or the last build of a pipeline file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autopipe.api.last_build import find_last_build
from autopipe.artifacts.model_nodes import NodeMap
from autopipe.compiler.target import cpu
from autopipe.config import PIPELINE_SUFFIXES
from autopipe.errors import PackageError, StageError
from autopipe.packaging.contents import opened
from autopipe.packaging.node_map import read_node_map
from autopipe.packaging.variants import choose_build
from autopipe.processes import call
from autopipe.profiling.peaks import measure_peaks
from autopipe.profiling.profile import Peaks, Profile, build_profile
from autopipe.verification.reference import MODEL


@dataclass(frozen=True, slots=True)
class ProfileTarget:
    """A build to profile."""

    path: Path
    """A package, or the artifact of *build*."""
    nodes: NodeMap
    model: Path | None
    """The model with its weights, in the format of reference runtimes; None for a package."""


def find_target(
    target: Path, *, store: Path | None = None, overrides: Sequence[str] = (),
    build: str | None = None,
) -> ProfileTarget:  # fmt: skip
    """Find the build of a package for this machine, or the last build of a pipeline file.

    Raises ConfigError for a pipeline file that was not built, PackageError.
    """
    if target.suffix in PIPELINE_SUFFIXES:
        last = find_last_build(target, store=store, overrides=overrides, build=build)
        model = last.artifacts["import"] / MODEL
        nodes = NodeMap.read(last.artifacts["build"])
        return ProfileTarget(last.artifacts["build"], nodes, model if model.exists() else None)
    with opened(target) as contents:
        prefix, _ = choose_build(contents.manifest.needs, cpu.list_host_features())
        nodes = read_node_map(contents, prefix)
    return ProfileTarget(target.absolute(), nodes, None)


def profile_build(
    target: ProfileTarget, *, inputs: Sequence[str] = (), sizes: Sequence[str] = (),
    threads: int | None = None, runs: int = 10,
) -> Profile:  # fmt: skip
    """Run a build in a child process, and measure the time of each kernel.

    Raises ConfigError for inputs that do not fit, PackageError for a build that fails.
    """
    bodies = {one.name for library in target.nodes.libraries for one in library.functions}
    request = {
        "path": str(target.path), "inputs": list(inputs), "sizes": list(sizes),
        "threads": threads, "runs": runs, "bodies": sorted(bodies),
    }  # fmt: skip
    try:
        answer = call.run_module("autopipe.profiling.watched_run", request)
    except StageError as error:
        raise PackageError(f"{target.path}: running it failed: {error}") from None
    peaks = Peaks(**measure_peaks(int(answer["threads"])))
    return build_profile(answer, target.nodes, runs, peaks)
