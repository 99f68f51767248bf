"""The last run of a pipeline file, in the store: actions of stages, configuration, package.

The keys of actions do not hold the pipeline file. Without a history, `explain` would compare a
file with the last run of another file, and files of one name would overwrite each other's package.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from autopipe.errors import StoreError
from autopipe.store import files
from autopipe.store.canonical import Document, digest_json, seal_document, unseal_document
from autopipe.store.store import Store


class History(NamedTuple):
    """The runs of one pipeline file, or of one of its builds, in one store."""

    store: Store
    file: Path
    """The pipeline file."""
    name: str
    """Name of the pipeline."""
    build: str | None = None
    """Which of the file's builds it is; null where the file has none."""
    reads_previous: bool = False
    """Whether it reads the run before the last one that built something."""

    @classmethod
    def of(cls, store: Store, file: Path, name: str, build: str | None = None) -> Self:
        """Return the history of a pipeline file, or of one of its builds."""
        return cls(store, file.absolute(), name, build)

    def last_action(self, kind: str) -> Document | None:
        """Return the last action of a kind, None if this file never ran one.

        An action that is no longer in the store is an empty document.
        """
        key = self.last_key(kind)
        if key is None:
            return None
        try:
            entry = self.store.entry(key)
        except StoreError:  # damaged, which a run reports
            entry = None
        return {} if entry is None else entry.action

    def last_actions(self) -> dict[str, Document]:
        """Return the last action of each kind that is in the store."""
        kinds = self._read()["stages"]
        return {kind: action for kind in kinds if (action := self.last_action(kind))}

    def last_keys(self) -> list[str]:
        """Return the keys of the last action of each kind."""
        return [str(key) for key in self._read()["stages"].values()]

    def last_key(self, kind: str) -> str | None:
        """Return the key of the last action of a kind, None if this file never ran one."""
        key = self._read()["stages"].get(kind)
        return key if isinstance(key, str) else None

    @property
    def configuration(self) -> Document | None:
        """Return the configuration of the run that made the last build, if there is one."""
        configuration = self._read().get("configuration")
        return configuration if isinstance(configuration, dict) else None

    def previous(self) -> Self:
        """Return the history as it was before the run that made the last build."""
        return self._replace(reads_previous=True)

    def last_run(self) -> Document:
        """Return the record of the last run, as `remember_run` takes it."""
        document = self._read()
        return {name: document[name] for name in ("stages", "configuration") if name in document}

    def remember_run(self, configuration: Document, before: Document) -> None:
        """Store the configuration of a run that made a build, and the record before it."""
        self._update_document(
            lambda known: {**known, "configuration": configuration, "previous": before}
        )

    def remember_action(self, kind: str, key: str) -> None:
        """Store the key of a completed action, run or cached."""
        self._update_document(lambda known: {**known, "stages": {**known["stages"], kind: key}})

    def remember_package(self, package: Path) -> None:
        """Store the path of the published package."""
        self._update_document(lambda known: {**known, "package": self._to_relative_path(package)})

    def owner(self, package: Path) -> Path | None:
        """Return another existing pipeline file that published a package, None without one."""
        package_path, own_path = self._to_relative_path(package), self._to_relative_path(self.file)
        for document in _read_documents(self.store):
            other_file = Path(os.path.normpath(self.store.root / document["file"]))
            is_owner = document.get("package") == package_path and document["file"] != own_path
            if is_owner and other_file.is_file() and package.exists():
                return other_file
        return None

    @property
    def _path(self) -> Path:
        file = self._to_relative_path(self.file)
        digest = digest_json(file if self.build is None else [file, self.build])
        return self.store.root / "runs" / f"{digest}.json"

    def _to_relative_path(self, path: Path) -> str:
        """Return a path relative to the store: it stays valid if both are copied together."""
        return os.path.relpath(path.resolve(), self.store.root.resolve())

    def _read(self) -> Document:
        path = self._path
        with files.wrap_os_errors(path):
            document = _read_document_file(path) or {}
        if self.reads_previous:
            previous = document.get("previous")
            document = previous if isinstance(previous, dict) else {}
        return {"stages": {}, **document}

    def _update_document(self, change: Callable[[Document], Document]) -> None:
        """Rewrite the document if the change alters it."""
        path = self._path
        with files.wrap_os_errors(path):
            stored_document = _read_document_file(path)
            identity = {"file": self._to_relative_path(self.file), "name": self.name}
            document = {**change({"stages": {}, **(stored_document or {})}), **identity}
            if document == stored_document:
                os.utime(path)  # `cache gc` removes unused ones
            else:
                files.replace(path, seal_document(document), self.store.tmp)


def list_pipelines_by_key(store: Store) -> Mapping[str, list[str]]:
    """Return the names of the pipelines whose last run used an action, by its key."""
    names: dict[str, set[str]] = {}
    for document in _read_documents(store):
        for key in document["stages"].values():
            names.setdefault(str(key), set()).add(str(document["name"]))
    return {key: sorted(used) for key, used in names.items()}


def _read_documents(store: Store) -> Iterator[Document]:
    with files.wrap_os_errors(store.root):
        documents = [
            _read_document_file(path) for path in sorted((store.root / "runs").glob("*.json"))
        ]
    return (document for document in documents if document is not None)


def _read_document_file(path: Path) -> Document | None:
    """Read a history document; None where it is missing or damaged."""
    document: dict[str, Any] | None = unseal_document(files.read_or_discard(path) or b"")
    if document is None or not isinstance(document.get("stages"), dict):
        return None
    return document if isinstance(document.get("file"), str) else None
