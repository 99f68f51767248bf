"""The artifacts that the last build of a pipeline file was made of."""

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
    """Return the artifact of the last *build* of a file, and those it was made of, by their stage.

    That build need not have been verified. Raises ConfigError for a file that was not built, or of
    whose artifacts one is gone.
    """
    missing = ConfigError(f"{file} has no build in the store; run `autopipe run {file}` first")
    with open_store(root or find_default_root(), FOR_EVER) as store:
        key = History.of(store, file, pipeline.name, build).last_key("build")
        built = None if key is None else store.lookup(key, lambda _: None)
        entry = None if key is None else store.entry(key)
        if built is None or entry is None:
            raise missing
        found = {stage: store.object(str(name)) for stage, name in entry.action["inputs"].items()}
    if not all(path.is_dir() for path in found.values()):
        raise missing
    return {**found, "build": built.path}
