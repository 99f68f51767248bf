"""Find the artifacts of the last build of a pipeline file and of its inputs."""

from collections.abc import Mapping
from pathlib import Path

from autopipe.config.pipeline import Pipeline
from autopipe.errors import ConfigError
from autopipe.pipeline.history import History
from autopipe.store.locks import FOR_EVER
from autopipe.store.store import find_default_root, open_store


def find_artifacts(
    pipeline: Pipeline, file: Path, root: Path | None, build: str | None
) -> Mapping[str, Path]:
    """Return the artifacts of the last *build* of a file and of its inputs, by stage.

    That build need not have been verified. Raises ConfigError for a file that was not built, or
    artifacts that are no longer in the store.
    """
    missing = ConfigError(f"{file} has no build in the store; run `autopipe run {file}` first")
    with open_store(root or find_default_root(), FOR_EVER) as store:
        key = History.of(store, file, pipeline.name, build).last_key("build")
        build_artifact = None if key is None else store.lookup(key, lambda _: None)
        entry = None if key is None else store.entry(key)
        if build_artifact is None or entry is None:
            raise missing
        input_paths = {
            stage: store.object(str(name)) for stage, name in entry.action["inputs"].items()
        }
    if not all(path.is_dir() for path in input_paths.values()):
        raise missing
    return {**input_paths, "build": build_artifact.path}
