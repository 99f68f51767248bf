"""The remote cache of a run: every failure of the remote is a cache miss."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from autopipe.config.cache import Cache, resolve_remote_url
from autopipe.errors import StoreError
from autopipe.pipeline.events import Emit, Warn
from autopipe.remote.courier import AbsentError, Courier, DamagedError, DeniedError
from autopipe.remote.depot import Depot
from autopipe.remote.transfer import UNSEEN, Inspect, bring
from autopipe.store import files
from autopipe.store.artifact import Artifact, Kind
from autopipe.store.canonical import Document, digest_json
from autopipe.store.store import Store


@contextmanager
def open_shared(
    cache: Cache,
    base: Path,
    store: Store,
    emit: Emit,
    inspect: Mapping[str, Inspect] = UNSEEN,
) -> Iterator["Shared | None"]:
    """Share a store as section `cache` configures it; a folder is relative to `base`.

    `inspect` checks fetched artifacts, by the name of the stage.
    """
    if cache.remote is None or cache.mode == "off":
        yield None
        return
    url = resolve_remote_url(cache.remote, base)
    with Courier(url, store.tmp, timeout=cache.timeout, total=cache.time) as courier:
        yield Shared(courier, store, emit, inspect, write=cache.mode == "readwrite")


class Shared:
    """Fetches and uploads artifacts; warns once, and never raises for errors of the remote.

    After a failure the remote is not used again. Damaged entries are skipped, and a read-only
    remote is still read.
    """

    def __init__(
        self,
        courier: Courier,
        store: Store,
        emit: Emit,
        inspect: Mapping[str, Inspect],
        *,
        write: bool,
    ) -> None:
        self._courier = courier
        self._depot = Depot(courier, store.tmp)
        self._store = store
        self._emit = emit
        self._inspect = inspect
        self._write = write
        self._read = True
        self._checked = self._warned = False

    def fetch(self, document: Document, kind: Kind) -> Artifact | None:
        """Copy the artifact of an action from the remote to the store; None if it is not there."""
        if not self._read:
            return None
        try:
            return self._fetch_artifact(document, kind)
        except AbsentError:
            return None
        except DamagedError as error:
            self._warn_once(f"{error}; not used")
        except StoreError as error:
            self._stop_using_remote(error)
        return None

    def offer(self, key: str) -> None:
        """Upload an artifact, if the remote is writable."""
        if not (self._read and self._write):
            return
        try:
            self._check_once()
            with files.wrap_os_errors(self._store.root):
                entry = self._store.entry(key)
            if entry is not None:
                tree = self._store.object(entry.digest)
                self._depot.send(key, entry, tree)
        except DamagedError as error:
            self._warn_once(f"{error}; not sent")
        except DeniedError as error:
            self._write = False
            self._warn_once(f"cannot be written: {error}; this run only reads it")
        except StoreError as error:
            self._stop_using_remote(error)

    def _fetch_artifact(self, document: Document, kind: Kind) -> Artifact | None:
        self._check_once()
        key = digest_json(document)
        entry = self._depot.entry(key)
        if entry.kind is not kind:
            raise DamagedError(f"action {key[:16]} is damaged: it made a {entry.kind}")
        return bring(self._store, self._depot, entry, key, self._inspect)

    def _check_once(self) -> None:
        if not self._checked:
            self._depot.check(make=self._write)
            self._checked = True

    def _stop_using_remote(self, error: StoreError) -> None:
        self._read = False
        self._courier.close()
        self._warn_once(f"{error}; this run goes on without it")

    def _warn_once(self, text: str) -> None:
        if not self._warned:
            self._emit(Warn(stage="cache", message=f"{self._courier.url}: {text}"))
        self._warned = True
