"""Command `autopipe profile`: the time of a build by kernel."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from autopipe.cli.options import BuildName, Json, Set, StoreRoot
from autopipe.cli.terminal import complain_of_load, print_lines, show_json
from autopipe.errors import ConfigError, StoreError, convert_os_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autopipe.api.profile import ProfileTarget
    from autopipe.profiling.against import ComparedProfile
    from autopipe.profiling.profile import Profile

_RUNTIME = "onnxruntime"
SortKey = Literal["time", "order", "calls", "name"]


Target = Annotated[
    Path, typer.Argument(metavar="PACKAGE|FILE", help="A package, or a pipeline file")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="[NAME=]FILE.npy", help="An input  [zeros]"),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--size", metavar="INPUT[:AXIS]=N", help="A size of a dynamic dimension  [largest]"
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="[as it was tuned]")]
Runs = Annotated[int, typer.Option(min=1, max=10_000, help="Runs that count")]
Sort = Annotated[SortKey, typer.Option(metavar="KEY", help="time, order (of calls), calls or name")]
Against = Annotated[
    Literal["onnxruntime"] | None,
    typer.Option(metavar="RUNTIME", help="Compare it with the profile of `onnxruntime`"),
]
Model = Annotated[
    Path | None, typer.Option(metavar="FILE.onnx", help="What `--against` runs, for a package")
]
Trace = Annotated[
    Path | None,
    typer.Option(metavar="FILE.json", help="Write one run for Perfetto or speedscope"),
]


def profile(  # noqa: PLR0913 -- one for each option
    target: Target,
    *,
    inputs: Inputs = None,
    sizes: Sizes = None,
    threads: Threads = None,
    runs: Runs = 10,
    sort: Sort = "time",
    against: Against = None,
    model: Model = None,
    trace: Trace = None,
    build: BuildName = None,
    overrides: Set = None,
    store: StoreRoot = None,
    as_json: Json = False,
) -> None:
    """Show the time of a build by kernel and by node of the model.

    A pipeline file stands for its last build. The time of a kernel is that of all its nodes: it is
    not divided among them.
    """
    from autopipe.api.profile import find_target, profile_build

    if against is not None and inputs:
        raise ConfigError("--against compares runs on zeros; leave --input out")
    profile_target = find_target(target, store=store, overrides=overrides or (), build=build)
    reference = model or profile_target.model
    if against is not None and reference is None:
        raise ConfigError("--against needs the model: name its ONNX file with --model")
    build_profile = profile_build(
        profile_target, inputs=inputs or (), sizes=sizes or (), threads=threads, runs=runs
    )
    complain_of_load(build_profile.disturbed)
    comparison = (
        None
        if against is None or reference is None
        else _compare_with_reference(build_profile, profile_target, reference)
    )
    if trace is not None:
        _write_trace(trace, build_profile)
    if as_json:
        show_json(_build_document(build_profile, comparison))
    else:
        print_lines(_list_lines(build_profile, comparison, sort))
        print_lines([] if trace is None else [f"wrote {trace}"])


def _list_lines(
    profile: "Profile", comparison: "ComparedProfile | None", sort: SortKey
) -> "Iterator[str]":
    from autopipe.profiling.table import list_comparison_lines, list_profile_lines
    from autopipe.report.tasks import choose_table_width

    width = choose_table_width()
    if comparison is not None:
        return list_comparison_lines(comparison, width)
    return list_profile_lines(profile, sort, width)


def _compare_with_reference(
    profile: "Profile", target: "ProfileTarget", model: Path
) -> "ComparedProfile":
    from autopipe.profiling.against import compare_profiles
    from autopipe.profiling.reference_profile import profile_reference

    times = profile_reference(model, profile.shapes, profile.threads, profile.runs)
    return compare_profiles(profile, target.nodes.nodes, _RUNTIME, times)


def _build_document(profile: "Profile", comparison: "ComparedProfile | None") -> dict[str, object]:
    document = {**profile.document(), "difference": profile.difference}
    if comparison is not None:
        document["against"] = comparison.document()
    return document


def _write_trace(path: Path, profile: "Profile") -> None:
    from autopipe.profiling.trace import list_trace_events

    with convert_os_errors(StoreError, f"--trace {path}"):
        path.write_text(json.dumps(list_trace_events(profile)), encoding="utf-8")
