"""Cache keys: an action is a plain document, and its key is the digest of that document.

The document is stored beside the result, so "why does this run again?" is a diff of two
documents and never a guess.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from autopipe.environment.facet import Facts
from autopipe.errors import ConfigError, convert_os_errors
from autopipe.pipeline.stage import Stage
from autopipe.store.canonical import Document
from autopipe.store.content import TreeDigests, digest_tree
from autopipe.store.files import IrregularError

FORMAT: Final = 1
"""Bump when the meaning of the document changes; every key changes with it."""


def build_action(
    stage: Stage, inputs: Mapping[str, str | None], facts: Facts, contents: TreeDigests
) -> Document:
    """Build the action document: everything that determines the output of the stage, only that.

    `inputs` are the digests of its inputs by name. Raises ConfigError for a source that cannot
    be read.
    """
    digests = digest_sources(stage, contents)
    unkeyed_fields = stage.unkeyed() | digests.keys()
    return {
        "format": FORMAT,
        "stage": stage.name,
        "version": stage.version,
        "params": stage.model_dump(mode="json", exclude=set(unkeyed_fields)),
        "sources": digests,
        "inputs": dict(inputs),
        "facts": {facet.value: dict(facts[facet]) for facet in stage.keyed()},
    }


def digest_sources(stage: Stage, contents: TreeDigests) -> dict[str, str]:
    """Digest the files outside the store that a stage reads. Raises ConfigError."""
    return {name: _digest_source(path, contents) for name, path in stage.sources().items()}


def _digest_source(source: Path, contents: TreeDigests) -> str:
    """Digest a file outside the store, following symbolic links."""
    try:
        with convert_os_errors(ConfigError, source):
            return digest_tree(contents.manifest(source.resolve(strict=True)))
    except IrregularError as error:
        raise ConfigError(f"{source}: {error}") from error
