"""`autopipe cache`: commands that look after a store."""

import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from autopipe.cli_options import StoreRoot
from autopipe.errors import GateError, StoreError
from autopipe.pipeline.gc import collect, entries, parse_size, verify
from autopipe.pipeline.store import Store, default_root, open_store
from autopipe.terminal import show

app = typer.Typer(no_args_is_help=True, help="Look after the store.")


@app.command("ls")
def cache_ls(store: StoreRoot = None) -> None:
    """List what is in the store, the most recently used last."""
    with _store(store) as opened:
        rows = sorted(entries(opened).items(), key=lambda item: item[1].used)
    show(
        f"{key[:16]}  {entry.action['stage']:<10} {entry.size / 2**20:10.1f} MiB  "
        f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(entry.used / 1e9))}"
        for key, entry in rows
    )


@app.command("gc")
def cache_gc(
    store: StoreRoot = None,
    keep_days: Annotated[float, typer.Option(min=0, help="Keep what was used since then")] = 30,
    max_size: Annotated[
        str | None, typer.Option(help="Then delete the least used beyond this, such as 20G")
    ] = None,
) -> None:
    """Delete what nobody used for long; what runs that are going on use is kept."""
    limit = None if max_size is None else parse_size(max_size)
    with _store(store) as opened:
        swept = collect(opened, keep_days=keep_days, max_size=limit)
    show([f"deleted {swept.entries} entries, {swept.bytes / 2**20:.1f} MiB"])


@app.command("verify")
def cache_verify(store: StoreRoot = None) -> None:
    """Read every byte in the store again; what is damaged goes to quarantine."""
    with _store(store) as opened:
        sound, damaged = verify(opened)
    show([*damaged, f"{sound} sound, {len(damaged)} damaged"])
    if damaged:
        raise GateError("damaged entries were moved to quarantine; the next run makes them again")


def _store(root: Path | None) -> AbstractContextManager[Store]:
    """Open a store that must be there."""
    root = root or default_root()
    if not root.exists():
        raise StoreError(f"{root}: there is no store; name one with --store")
    return open_store(root)
