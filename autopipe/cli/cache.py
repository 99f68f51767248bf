"""`autopipe cache`: commands to manage a store."""

import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autopipe.cli.options import (
    Pipeline,
    Remote,
    StoreRoot,
    Url,
    choose_remote,
    make_patience,
    open_remote,
)
from autopipe.cli.terminal import print_lines, print_warning
from autopipe.errors import ConfigError, GateError, StoreError
from autopipe.report.units import format_mib, format_plural

if TYPE_CHECKING:
    from autopipe.remote.transfer import Moved
    from autopipe.store.store import Store

app = typer.Typer(no_args_is_help=True, help="Look after the store, and share it.")


@app.command("ls")
def cache_ls(store: StoreRoot = None) -> None:
    """List the entries of the store, the most recently used last.

    The pipelines are those that used an entry in their last run.
    """
    from autopipe.pipeline.history import list_pipelines_by_key
    from autopipe.store.gc import list_entries

    with _open_existing_store(store) as opened_store:
        rows = sorted(list_entries(opened_store).items(), key=lambda item: item[1].used)
        names = list_pipelines_by_key(opened_store)
    print_lines(
        f"{key[:16]}  {entry.action['stage']:<10} {entry.size / 2**20:10.1f} MiB  "
        f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(entry.used / 1e9))}  "
        f"{', '.join(names.get(key, ['-']))}"
        for key, entry in rows
    )


@app.command("gc")
def cache_gc(
    store: StoreRoot = None,
    keep_days: Annotated[float, typer.Option(min=0, help="Keep what was used since then")] = 30,
    max_size: Annotated[
        str | None, typer.Option(help="Then evict by last use down to this size, such as 20G")
    ] = None,
    remote: Remote = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how much would be deleted")
    ] = False,
) -> None:
    """Delete entries that were not used for long.

    Entries in use by a current run are kept.

    In a remote, age counts: it does not record uses.
    """
    if remote is not None:
        if dry_run:
            raise ConfigError("--dry-run is for a store, and not for a remote")
        _gc_remote(remote, keep_days, max_size)
        return
    from autopipe.store.gc import collect_garbage, parse_size

    limit = None if max_size is None else parse_size(max_size)
    with _open_existing_store(store) as opened_store:
        swept = collect_garbage(opened_store, keep_days=keep_days, max_size=limit, dry_run=dry_run)
    verb = "would delete" if dry_run else "deleted"
    print_lines([f"{verb} {swept.entries} entries, {format_mib(swept.bytes)}"])


@app.command("verify")
def cache_verify(store: StoreRoot = None, remote: Remote = None) -> None:
    """Check every byte in the store.

    Damaged entries are moved to quarantine.

    In a remote, they are deleted, where that is allowed.
    """
    if remote is not None:
        _verify_remote(remote)
        return
    from autopipe.store.gc import verify_store

    with _open_existing_store(store) as opened_store:
        sound, damaged_entries = verify_store(opened_store)
    print_lines([*damaged_entries, f"{sound} sound, {len(damaged_entries)} damaged"])
    if damaged_entries:
        raise GateError("damaged entries were moved to quarantine; the next run makes them again")


@app.command("push")
def cache_push(url: Url = None, *, pipeline: Pipeline = None, store: StoreRoot = None) -> None:
    """Copy the entries of the store to a remote.

    Results that hold for this machine only are not copied.
    """
    from autopipe.remote import transfer
    from autopipe.remote.depot import open_depot

    with (
        _open_existing_store(store) as opened_store,
        open_depot(choose_remote(url, pipeline), opened_store.tmp) as depot,
    ):
        copied = transfer.push_entries(opened_store, depot, _list_uncached_stages(), print_warning)
    print_lines([f"pushed {_format_moved(copied)}"])


@app.command("pull")
def cache_pull(url: Url = None, *, pipeline: Pipeline = None, store: StoreRoot = None) -> None:
    """Copy all entries of a remote into the store.

    A run does not need that: it fetches entries on demand.
    """
    from autopipe.api.shapes import SHAPES
    from autopipe.remote import transfer
    from autopipe.remote.depot import open_depot
    from autopipe.store.store import find_default_root, open_store

    with (
        open_store(store or find_default_root(), make_patience()) as opened_store,
        open_depot(choose_remote(url, pipeline), opened_store.tmp) as depot,
    ):
        copied = transfer.pull_entries(
            opened_store, depot, _list_uncached_stages(), print_warning, SHAPES
        )
    print_lines([f"pulled {_format_moved(copied)}"])


def _gc_remote(url: str, keep_days: float, max_size: str | None) -> None:
    from autopipe.remote import sweep

    if max_size is not None:
        raise ConfigError("--max-size is for a store; a remote does not record uses")
    with open_remote(url) as depot:
        swept = sweep.sweep_depot(depot, keep_days=keep_days)
    print_lines([f"deleted {swept.entries} entries, {format_plural(swept.objects, 'object')}"])


def _verify_remote(url: str) -> None:
    from autopipe.remote import sweep

    with open_remote(url) as depot:
        sound, damaged_entries = sweep.verify_depot(depot)
    print_lines([*damaged_entries, f"{sound} sound, {len(damaged_entries)} damaged"])
    if damaged_entries:
        raise GateError("a remote has damaged entries; a run that meets one makes it again")


def _list_uncached_stages() -> set[str]:
    """Return the stages with results that hold for one machine only."""
    from autopipe.stages import STAGES

    return {stage.name for stage in STAGES if not stage.cached}


def _format_moved(counts: "Moved") -> str:
    return f"{counts.entries} entries, {format_mib(counts.bytes)}; {counts.known} were there"


def _open_existing_store(root: Path | None) -> "AbstractContextManager[Store]":
    """Open an existing store."""
    from autopipe.store.store import find_default_root, open_store

    root = root or find_default_root()
    if not root.exists():
        raise StoreError(f"{root}: there is no store; name one with --store")
    return open_store(root, make_patience())
