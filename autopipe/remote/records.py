"""Tuning records that machines share. All of it raises StoreError.

A push adds one file of the records that nobody has brought before, named by its digest, and no file
is ever changed: whoever pushes at the same time loses nothing, and what both bring is one record
again when it is pulled.
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
    """Bring all records that the remote does not have; return how many, and how many it has."""
    depot.check(make=True)
    there = {_record_identity(record) for record in _read_pushed_records(depot, warn)}
    every = store.every()
    new = [record for record in every if _record_identity(record) not in there]
    if new:
        data = lines.write(new).encode()
        depot.write(f"records/{hashlib.sha256(data).hexdigest()}", data)
    return Taken(len(new), len(every) - len(new))


def pull_records(store: RecordStore, depot: Depot, warn: Warn) -> Taken:
    """Take over all records of the remote that are not known yet."""
    depot.check(make=False)
    return add_claims(store, _read_pushed_records(depot, warn))


def _read_pushed_records(depot: Depot, warn: Warn) -> Iterator[RecordDetails]:
    """Read what was pushed; a damaged file costs itself."""
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
    """Return what makes two records the same to a store, and whether it is known to be wrong."""
    checksum = details.record.checksum(details.platform)
    return details.record.workload, details.identity, checksum, details.wrong
