"""`autopipe records`: commands on the tuning records of a store."""

import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from autopipe.cli.options import Json, Pipeline, StoreRoot, Url, patient, remote_of
from autopipe.cli.terminal import complain, show, show_json, show_text
from autopipe.errors import ConfigError, GateError
from autopipe.report.units import plural

if TYPE_CHECKING:
    from autopipe.records.store import RecordDetails, RecordStore

app = typer.Typer(no_args_is_help=True, help="Look at tuning records, and carry them around.")

Workload = Annotated[str | None, typer.Option(metavar="HASH", help="Only workloads that start so")]
Target = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Only targets with this text, such as znver4")
]
Output = Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; - is stdout")]


@app.command("ls")
def records_ls(store: StoreRoot = None, *, target: Target = None, as_json: Json = False) -> None:
    """List what was tuned: the trials, and the best time."""
    from autopipe.records.catalog import catalog
    from autopipe.records.merge import planted
    from autopipe.report import records as report
    from autopipe.report.tasks import columns

    with _view(store) as opened:
        entries = catalog(_chosen(opened.every(), None, target))
        kept, logged = opened.kept_aside(), len(planted(opened))
        _tell_damaged(opened)
    if as_json:
        show_json(report.table(entries))
        return
    show(report.listing(entries, columns(sys.stdout)))
    if logged:
        show([f"from logs of other tools: {plural(logged, 'seed')}"])
    if kept:
        show([f"kept aside: {plural(kept, 'damaged record')}"])


@app.command("show")
def records_show(
    workload: Annotated[str, typer.Argument(help="The start of its hash is enough")],
    store: StoreRoot = None,
    *,
    as_json: Json = False,
) -> None:
    """Show what is known of one workload."""
    from autopipe.records.catalog import catalog, one
    from autopipe.report import records as report
    from autopipe.report.tasks import columns

    with _view(store) as opened:
        entries = one(catalog(opened.every()), workload)
        _tell_damaged(opened)
    if as_json:
        show_json(report.document(entries))
        return
    for entry in entries:
        show([*report.whole(entry, columns(sys.stdout)), ""])


@app.command("export")
def records_export(
    output: Output,
    store: StoreRoot = None,
    *,
    best: Annotated[bool, typer.Option("--best", help="Only the fastest of each workload")] = False,
    workload: Workload = None,
    target: Target = None,
) -> None:
    """Write records as text, a line each.

    The same records give the same bytes.
    """
    from autopipe.records import lines

    with _view(store) as opened:
        chosen = _chosen(opened.every(), workload, target)
        _tell_damaged(opened)
    text = lines.write(lines.winners(chosen) if best else chosen)
    if str(output) == "-":
        show_text(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{output}: can not be written: {error.strerror}") from None
    show([f"wrote {plural(text.count(chr(10)), 'record')} to {output}"])


@app.command("import")
def records_import(
    source: Annotated[
        Path, typer.Argument(help="An export, a MetaSchedule database, or an AutoTVM log")
    ],
    store: StoreRoot = None,
    *,
    target: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Target a database's records must have  [this machine]"),
    ] = None,
) -> None:
    """Take over records from a file.

    Those of another machine or tool only seed searches.
    """
    from autopipe.records.importing import bring

    with _open(store) as opened:
        brought = bring(opened, source, target)
    for reason, count in sorted(brought.left_out.items()):
        complain(f"warning: left out {count}: {reason}")
    show([f"{plural(brought.added, brought.what)} added, {brought.known} were known"])
    if not brought.added + brought.known:
        raise GateError(f"{source}: there was nothing to take over")


@app.command("merge")
def records_merge(
    sources: Annotated[list[Path], typer.Argument(help="Other stores, or their record files")],
    store: StoreRoot = None,
) -> None:
    """Take over all records of other stores, each once."""
    from autopipe.records.merge import merge

    with _open(store) as opened:
        for source in sources:
            taken, damaged = merge(opened, _file(source) if source.is_dir() else source)
            if damaged:
                complain(f"warning: {source}: left out {plural(damaged, 'damaged record')}")
            if taken.condemned:
                complain(f"warning: {source}: left out {taken.condemned}: said to be wrong there")
            show([f"{source}: {plural(taken.added, 'record')} added, {taken.known} were known"])


@app.command("push")
def records_push(url: Url = None, *, pipeline: Pipeline = None, store: StoreRoot = None) -> None:
    """Copy all records to a remote, each once.

    No record that is there is replaced.
    """
    from autopipe.remote import records
    from autopipe.remote.depot import reached

    where = remote_of(url, pipeline)
    with _view(store) as opened, TemporaryDirectory() as tmp, reached(where, Path(tmp)) as depot:
        taken = records.push(opened, depot, _warn)
        _tell_damaged(opened)
    show([f"{plural(taken.added, 'record')} pushed, {taken.known} were there"])


@app.command("pull")
def records_pull(url: Url = None, *, pipeline: Pipeline = None, store: StoreRoot = None) -> None:
    """Take over all records of a remote, each once.

    Those of other machines only seed searches.
    """
    from autopipe.remote import records
    from autopipe.remote.depot import reached

    where = remote_of(url, pipeline)
    with _open(store) as opened, TemporaryDirectory() as tmp, reached(where, Path(tmp)) as depot:
        taken = records.pull(opened, depot, _warn)
    if taken.condemned:
        complain(f"warning: left out {taken.condemned}: said to compute something else")
    show([f"{plural(taken.added, 'record')} added, {taken.known} were known"])


@app.command("prune")
def records_prune(  # noqa: PLR0913 -- one for each option
    store: StoreRoot = None,
    *,
    older_than: Annotated[
        float | None, typer.Option(metavar="DAYS", min=0, help="Records older than this")
    ] = None,
    keep_best: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="All but N of a workload and platform")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Trials without a time")] = False,
    other_versions: Annotated[
        bool, typer.Option("--other-versions", help="Records of another TVM than is installed")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go")] = False,
) -> None:
    """Delete records; at least one option says which."""
    from autopipe.records.prune import PruneRules, prune

    before = None if older_than is None else datetime.now(UTC) - timedelta(days=older_than)
    rules = PruneRules(before, keep_best, failed, _versions() if other_versions else None)
    if rules == PruneRules():
        raise ConfigError("say what goes: --older-than, --keep-best, --failed or --other-versions")
    with _view(store), _open(store) as opened:
        gone = prune(opened, rules, dry_run=dry_run)
    verb = "would delete" if dry_run else "deleted"
    show(f"{verb} {count}: {reason}" for reason, count in sorted(gone.items()))
    show([f"{verb} {plural(gone.total(), 'record')}"])


def _versions() -> Mapping[str, str]:
    from autopipe.environment.environment import version

    return {"tvm": version("apache-tvm"), "tvm_ffi": version("apache-tvm-ffi")}


def _chosen(
    records: Iterable["RecordDetails"], workload: str | None, target: str | None
) -> list["RecordDetails"]:
    start, text = (workload or "").lower(), target or ""
    return [
        record
        for record in records
        if record.record.workload.startswith(start) and text in record.platform.target
    ]


def _warn(text: str) -> None:
    complain(f"warning: {text}")


def _tell_damaged(store: "RecordStore") -> None:
    if store.damaged:
        complain(f"warning: {store.path}: left out {plural(store.damaged, 'damaged record')}")


def _view(root: Path | None) -> "RecordStore":
    from autopipe.records.store import RecordStore

    return RecordStore.view(_file(root))


def _open(root: Path | None) -> "RecordStore":
    """Open the records for writing, made anew if there are none."""
    from autopipe.records.store import RecordStore
    from autopipe.store.store import default_root, open_store

    with open_store(root or default_root(), patient()):
        return RecordStore.open(_file(root), lambda text: complain(f"warning: {text}"))


def _file(root: Path | None) -> Path:
    from autopipe.store.store import default_root

    return (root or default_root()) / "records" / "records.sqlite"
