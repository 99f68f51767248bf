"""`autopipe records`: commands on the tuning records of a store."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autopipe.cli.options import (
    Json,
    Pipeline,
    StoreRoot,
    Url,
    choose_remote,
    make_patience,
    open_remote,
)
from autopipe.cli.terminal import print_lines, print_warning, show_json, show_text
from autopipe.errors import ConfigError, GateError, convert_os_errors
from autopipe.report.units import format_plural

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
    """List the tuned workloads with their trials and best times."""
    from autopipe.records.catalog import group_by_workload
    from autopipe.records.merge import list_seeds
    from autopipe.report import records as report
    from autopipe.report.tasks import choose_table_width

    with _open_read_only(store) as opened_store:
        entries = group_by_workload(_select_records(opened_store.every(), None, target))
        damaged_count, seed_count = opened_store.kept_aside(), len(list_seeds(opened_store))
        _tell_damaged(opened_store)
    if as_json:
        show_json(report.to_json_table(entries))
        return
    print_lines(report.list_lines(entries, choose_table_width()))
    if seed_count:
        print_lines([f"from logs of other tools: {format_plural(seed_count, 'seed')}"])
    if damaged_count:
        print_lines([f"kept aside: {format_plural(damaged_count, 'damaged record')}"])


@app.command("show")
def records_show(
    workload: Annotated[str, typer.Argument(help="The start of its hash is enough")],
    store: StoreRoot = None,
    *,
    as_json: Json = False,
) -> None:
    """Show the records of one workload."""
    from autopipe.records.catalog import group_by_workload, select_workload
    from autopipe.report import records as report
    from autopipe.report.tasks import choose_table_width

    with _open_read_only(store) as opened_store:
        entries = select_workload(group_by_workload(opened_store.every()), workload)
        _tell_damaged(opened_store)
    if as_json:
        show_json(report.to_json_document(entries))
        return
    for entry in entries:
        print_lines([*report.list_entry_lines(entry, choose_table_width()), ""])


@app.command("export")
def records_export(
    output: Output,
    store: StoreRoot = None,
    *,
    best: Annotated[bool, typer.Option("--best", help="Only the fastest of each workload")] = False,
    workload: Workload = None,
    target: Target = None,
) -> None:
    """Write records as text, one per line.

    The output is deterministic.
    """
    from autopipe.records import lines

    with _open_read_only(store) as opened_store:
        selected_records = _select_records(opened_store.every(), workload, target)
        _tell_damaged(opened_store)
    text = lines.write(lines.select_winners(selected_records) if best else selected_records)
    if str(output) == "-":
        show_text(text)
        return
    with convert_os_errors(ConfigError, f"{output}: cannot be written"):
        output.write_text(text, encoding="utf-8")
    print_lines([f"wrote {format_plural(text.count(chr(10)), 'record')} to {output}"])


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
    """Import records from a file.

    Records of another machine or tool only seed searches.
    """
    from autopipe.records.importing import import_records

    with _open_for_writing(store) as opened_store:
        brought = import_records(opened_store, source, target)
    for reason, count in sorted(brought.left_out.items()):
        print_warning(f"left out {count}: {reason}")
    print_lines([f"{format_plural(brought.added, brought.what)} added, {brought.known} were known"])
    if not brought.added + brought.known:
        raise GateError(f"{source}: there was nothing to take over")


@app.command("merge")
def records_merge(
    sources: Annotated[list[Path], typer.Argument(help="Other stores, or their record files")],
    store: StoreRoot = None,
) -> None:
    """Import all records of other stores, each once."""
    from autopipe.records.merge import merge_store

    with _open_for_writing(store) as opened_store:
        for source in sources:
            merge_result, damaged_count = merge_store(
                opened_store, _find_records_path(source) if source.is_dir() else source
            )
            if damaged_count:
                left_out = format_plural(damaged_count, "damaged record")
                print_warning(f"{source}: left out {left_out}")
            if merge_result.condemned:
                print_warning(f"{source}: left out {merge_result.condemned}: marked wrong there")
            added_text = format_plural(merge_result.added, "record")
            print_lines([f"{source}: {added_text} added, {merge_result.known} were known"])


@app.command("push")
def records_push(url: Url = None, *, pipeline: Pipeline = None, store: StoreRoot = None) -> None:
    """Copy all records to a remote, each once.

    Existing records are not replaced.
    """
    from autopipe.remote import records

    where = choose_remote(url, pipeline)
    with _open_read_only(store) as opened_store, open_remote(where) as depot:
        push_result = records.push_records(opened_store, depot, print_warning)
        _tell_damaged(opened_store)
    print_lines(
        [f"{format_plural(push_result.added, 'record')} pushed, {push_result.known} were there"]
    )


@app.command("pull")
def records_pull(url: Url = None, *, pipeline: Pipeline = None, store: StoreRoot = None) -> None:
    """Import all records of a remote, each once.

    Records of other machines only seed searches.
    """
    from autopipe.remote import records

    where = choose_remote(url, pipeline)
    with _open_for_writing(store) as opened_store, open_remote(where) as depot:
        pull_result = records.pull_records(opened_store, depot, print_warning)
    if pull_result.condemned:
        print_warning(f"left out {pull_result.condemned}: marked wrong")
    print_lines(
        [f"{format_plural(pull_result.added, 'record')} added, {pull_result.known} were known"]
    )


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
    """Delete records that match at least one option."""
    from autopipe.records.prune import PruneRules, prune_records

    before = None if older_than is None else datetime.now(UTC) - timedelta(days=older_than)
    rules = PruneRules(before, keep_best, failed, _list_tvm_versions() if other_versions else None)
    if rules == PruneRules():
        raise ConfigError("say what goes: --older-than, --keep-best, --failed or --other-versions")
    with _open_read_only(store), _open_for_writing(store) as opened_store:
        deleted_counts = prune_records(opened_store, rules, dry_run=dry_run)
    verb = "would delete" if dry_run else "deleted"
    print_lines(f"{verb} {count}: {reason}" for reason, count in sorted(deleted_counts.items()))
    print_lines([f"{verb} {format_plural(deleted_counts.total(), 'record')}"])


def _list_tvm_versions() -> Mapping[str, str]:
    from autopipe.environment.environment import find_version

    return {"tvm": find_version("apache-tvm"), "tvm_ffi": find_version("apache-tvm-ffi")}


def _select_records(
    records: Iterable["RecordDetails"], workload: str | None, target: str | None
) -> list["RecordDetails"]:
    start, text = (workload or "").lower(), target or ""
    return [
        record
        for record in records
        if record.record.workload.startswith(start) and text in record.platform.target
    ]


def _tell_damaged(store: "RecordStore") -> None:
    if store.damaged:
        print_warning(f"{store.path}: left out {format_plural(store.damaged, 'damaged record')}")


def _open_read_only(root: Path | None) -> "RecordStore":
    from autopipe.records.store import RecordStore

    return RecordStore.view(_find_records_path(root))


def _open_for_writing(root: Path | None) -> "RecordStore":
    """Open the records for writing; create them if missing."""
    from autopipe.records.store import RecordStore
    from autopipe.store.store import find_default_root, open_store

    with open_store(root or find_default_root(), make_patience()):
        return RecordStore.open(_find_records_path(root), print_warning)


def _find_records_path(root: Path | None) -> Path:
    from autopipe.store.store import find_default_root, find_records

    return find_records(root or find_default_root())
