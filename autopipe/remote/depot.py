"""The layout of a remote: the same actions and objects as in a store.

    autopipe.json        the version of this layout
    actions/<key>.json   an action and its result, as in a store
    objects/<digest>     the files of an artifact, concatenated in the order of the action
    records/<digest>     tuning records as lines of text, named by its sha256

An object is written before its action. Nothing is trusted: each name is a digest, and content with
another digest is damaged.
"""

import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autopipe.config.cache import Cache, check_remote, resolve_remote_url
from autopipe.errors import ConfigError, StoreError
from autopipe.remote import bundle, entry
from autopipe.remote.courier import AbsentError, Courier, DamagedError, RemoteError
from autopipe.remote.server import PART
from autopipe.store import files
from autopipe.store.canonical import seal_document, unseal_document
from autopipe.store.entry import Entry, encode_entry

FORMAT: Final = 1
"""Version of the layout."""
_MARKER: Final = "autopipe.json"
_SMALL: Final = 2**24
"""Maximum bytes of a document."""
_LARGE: Final = 2**30
"""Maximum bytes of the records of one push."""


@dataclass(frozen=True, slots=True)
class Depot:
    """A remote, accessed by a courier. Every method raises RemoteError."""

    courier: Courier
    tmp: Path
    """Folder for temporary files."""

    def check(self, *, make: bool) -> None:
        """Check that the remote has this layout; `make` initializes an empty one."""
        try:
            content = unseal_document(self.read(_MARKER))
        except AbsentError:
            if not make:
                raise RemoteError("nothing was pushed there yet") from None
            self._write_marker()
            return
        if content != {"format": FORMAT}:
            raise RemoteError(f"its {_MARKER} is damaged, or not one of this autopipe")

    def actions(self) -> dict[str, float | None]:
        """Return the modification times of all actions by key, in seconds since 1970."""
        write_times = self.courier.list("actions")
        return _select_digest_names(
            {n.removesuffix(".json"): at for n, at in write_times.items() if "." in n}
        )

    def objects(self) -> dict[str, float | None]:
        """Return the modification times of all objects by digest."""
        return _select_digest_names(self.courier.list("objects"))

    def records(self) -> dict[str, float | None]:
        """Return the modification times of all files of tuning records by digest."""
        return _select_digest_names(self.courier.list("records"))

    def parts(self) -> dict[str, float | None]:
        """Return the modification times of unfinished uploads by path."""
        listings = {f: self.courier.list(f) for f in ("actions", "objects", "records")}
        return {
            f"{f}/{n}": at for f in listings for n, at in listings[f].items() if n.endswith(PART)
        }

    def entry(self, key: str) -> Entry:
        """Read the record of an action. Raises AbsentError, DamagedError."""
        return entry.parse_entry(key, self.read(_format_action_path(key)))

    def fetch(self, record: Entry, out: Path) -> None:
        """Download the artifact of an entry into an empty folder, and check all bytes."""
        name = f"objects/{record.digest}"
        with files.wrap_os_errors(self.tmp):
            free = shutil.disk_usage(self.tmp).free
        if record.size > free:
            raise DamagedError(
                f"object {record.digest[:16]} should have {record.size >> 20} MiB, where"
                f" {free >> 20} MiB are free"
            )
        with self._open_temporary_file() as file:
            try:
                self.courier.get(name, file, record.size, size=record.size)
            except AbsentError:
                raise DamagedError(f"object {record.digest[:16]} is not there") from None
            except DamagedError as error:
                raise DamagedError(f"object {record.digest[:16]} is {error}") from None
            bundle.unpack_files(file, record.manifest, out)

    def send(self, key: str, entry_record: Entry, tree: Path) -> None:
        """Upload an entry, its object first, overwriting existing files, which may be damaged."""
        with self._open_temporary_file() as file:
            bundle.pack_files(tree, entry_record.manifest, file)
            self._upload_file(file, f"objects/{entry_record.digest}")
        record = encode_entry(
            entry_record.action, entry_record.kind, entry_record.digest, entry_record.manifest
        )
        self.write(_format_action_path(key), record)

    def now(self) -> float:
        """Return the remote's time in seconds since 1970, because the local clock may be wrong."""
        self.write("clock", b"")
        at = self.courier.list("").get("clock")
        self.courier.remove("clock")
        if at is None:
            raise RemoteError("it states no modification times, so nothing is deleted")
        return at

    def drop(self, key: str) -> None:
        """Delete an action."""
        self.courier.remove(_format_action_path(key))

    def drop_object(self, digest: str) -> None:
        """Delete an object."""
        self.courier.remove(f"objects/{digest}")

    def read(self, name: str) -> bytes:
        """Download a document."""
        with self._open_temporary_file() as file:
            self.courier.get(name, file, _SMALL)
            with files.wrap_os_errors(file):
                return files.read(file, _SMALL)

    @contextmanager
    def pushed(self, digest: str) -> Iterator[Path]:
        """Download tuning records as a temporary file. Raises DamagedError for a wrong digest."""
        name = f"records/{digest}"
        with self._open_temporary_file() as file:
            size = self.courier.size(name) or _LARGE
            self.courier.get(name, file, _LARGE, size=min(_LARGE, size))
            with files.wrap_os_errors(file):
                if not file.is_file() or files.sha256(file) != digest:
                    raise DamagedError("damaged")
            yield file

    def write(self, name: str, data: bytes) -> None:
        """Write a file."""
        with self._open_temporary_file() as file:
            with files.wrap_os_errors(file):
                file.write_bytes(data)
            self._upload_file(file, name)

    def _write_marker(self) -> None:
        self.write(_MARKER, seal_document({"format": FORMAT}))

    def _upload_file(self, file: Path, name: str) -> None:
        try:
            with files.wrap_os_errors(file):
                self.courier.put(file, name)
        except AbsentError:
            raise RemoteError("there is no such bucket or folder") from None

    @contextmanager
    def _open_temporary_file(self) -> Iterator[Path]:
        file = self.tmp / f"remote-{secrets.token_hex(4)}"
        try:
            yield file
        finally:
            with files.wrap_os_errors(file):
                files.remove(file)


@contextmanager
def open_depot(text: str, tmp: Path) -> Iterator[Depot]:
    """Open a remote for a command, without a limit on the total time.

    Raises ConfigError, and StoreError with the remote's URL.
    """
    try:
        url = resolve_remote_url(check_remote(text), Path.cwd())
    except ValueError as error:
        raise ConfigError(f"the remote: {error}") from None
    with Courier(url, tmp, timeout=Cache().timeout) as courier:
        try:
            yield Depot(courier, tmp)
        except RemoteError as error:
            raise StoreError(f"{url}: {error}") from error


def _format_action_path(key: str) -> str:
    return f"actions/{key}.json"


def _select_digest_names(write_times: dict[str, float | None]) -> dict[str, float | None]:
    """Return the entries whose names are digests; a remote may hold other files."""
    return {
        name: write_times[name] for name in sorted(write_times) if re.fullmatch(entry.HEX, name)
    }
