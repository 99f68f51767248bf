"""Tuning records that machines share. All functions raise StoreError.

A push adds one file of new records, named by its digest, and no file is ever changed: concurrent
pushes lose nothing, and duplicate records are merged when they are pulled.
"""

import hashlib
from collections.abc import Callable, Iterator

from autopipe import foreign
from autopipe.records import lines
from autopipe.records.importing import list_sound_records
from autopipe.records.left_out import LeftOut
from autopipe.records.merge import Taken, add_claims
from autopipe.records.store import RecordDetails, RecordStore
from autopipe.remote.courier import AbsentError, DamagedError
from autopipe.remote.depot import Depot
from autopipe.store import files

Warn = Callable[[str], None]


def push_records(store: RecordStore, depot: Depot, warn: Warn) -> Taken:
    """Upload the records that the remote lacks; return the numbers of new and known ones."""
    depot.check(make=True)
    remote_identities = {_record_identity(record) for record in _read_pushed_records(depot, warn)}
    records = store.every()
    new = [record for record in records if _record_identity(record) not in remote_identities]
    if new:
        data = lines.write(new).encode()
        depot.write(f"records/{hashlib.sha256(data).hexdigest()}", data)
    return Taken(len(new), len(records) - len(new))


def pull_records(store: RecordStore, depot: Depot, warn: Warn) -> Taken:
    """Add all new records of the remote to the store."""
    depot.check(make=False)
    return add_claims(store, _read_pushed_records(depot, warn))


def _read_pushed_records(depot: Depot, warn: Warn) -> Iterator[RecordDetails]:
    """Read all pushed records; damaged files are omitted with a warning."""
    for name in depot.records():
        left_out = LeftOut()
        try:
            with (
                depot.pushed(name) as path,
                files.wrap_os_errors(path),
                foreign.open_regular_file(path) as file,
            ):
                yield from list_sound_records(
                    lines.read(foreign.read_lines(file, lines.LONGEST)), left_out
                )
        except AbsentError:  # deleted since it was listed
            continue
        except DamagedError:
            warn(f"records {name[:16]} are damaged; left out")
        for why, count in left_out.counts().items():
            warn(f"records {name[:16]}: left out {count}: {why}")


def _record_identity(details: RecordDetails) -> tuple[str, str, str, str | None]:
    """Return the identity of a record in a store, with its mark as wrong."""
    checksum = details.record.checksum(details.platform)
    return details.record.workload, details.identity, checksum, details.wrong
