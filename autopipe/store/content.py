"""Digests of files and directories, with a cache by file status."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from autopipe.store import files
from autopipe.store.canonical import digest_json, seal_document, unseal_document

_MARK: Final = 5
"""Number of values of a fingerprint, the digest last."""

_SETTLED: Final = 20_000_000
"""Resolution of time stamps in nanoseconds: later changes have a different one."""


class TreeFile(NamedTuple):
    """One file of a tree; a lone file is a tree whose file is called `.`."""

    name: str
    size: int
    sha256: str


Manifest = tuple[TreeFile, ...]
"""All files of a tree, sorted by name."""


def digest_tree(manifest: Manifest) -> str:
    """Digest a tree by the names and bytes of its files; a lone file by its bytes alone."""
    if [file.name for file in manifest] == ["."]:
        return manifest[0].sha256
    return digest_json([[file.name, file.size, file.sha256] for file in manifest])


class TreeDigests(NamedTuple):
    """Digests trees; a file whose fingerprint has not changed is not read again.

    The fingerprint is size, time of modification, time of change and inode, as in git's index. It
    detects changes through the file system, but not bit rot of the disk, which `full` does.
    """

    memory: Path
    """Folder of the fingerprints, one file a tree."""
    tmp: Path

    def manifest(
        self, tree: Path, *, full: bool = False, report: Callable[[int], None] = lambda _: None
    ) -> Manifest:
        """Digest every file below, sorted by name; `full` also reads unchanged files.

        `report` gets the bytes of each part that is read. Raises IrregularError at anything that is
        neither a regular file nor a directory.
        """
        memo = self._find_memo_path(tree)
        before = {} if full else _recall_marks(memo)
        after: dict[str, list[int | str]] = {}
        tree_files: list[TreeFile] = []
        for name, status in files.walk(tree):
            mark = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
            old = before.get(name, [])
            sha256 = str(old[4]) if old[:4] == mark else files.sha256(tree / name, report)
            tree_files.append(TreeFile(name, status.st_size, sha256))
            if time.time_ns() - status.st_ctime_ns > _SETTLED:
                after[name] = [*mark, sha256]
        if after != before:
            with files.wrap_os_errors(memo):
                files.replace(memo, seal_document({"files": after}), self.tmp)
        return tuple(tree_files)

    def moved(self, old: Path, new: Path) -> None:
        """Move the fingerprints of a renamed tree."""
        with suppress(FileNotFoundError):
            self._find_memo_path(old).rename(self._find_memo_path(new))

    def forget(self, tree: Path) -> None:
        """Drop the fingerprints of a tree."""
        files.remove(self._find_memo_path(tree))

    def _find_memo_path(self, tree: Path) -> Path:
        return self.memory / f"{digest_json(os.fspath(tree))}.json"


def _recall_marks(memo: Path) -> dict[str, list[int | str]]:
    with files.wrap_os_errors(memo):
        document = unseal_document(files.read_or_discard(memo) or b"")
    marks = (document or {}).get("files")
    return {
        name: mark
        for name, mark in (marks.items() if isinstance(marks, dict) else ())
        if isinstance(mark, list) and len(mark) == _MARK and isinstance(mark[-1], str)
    }
