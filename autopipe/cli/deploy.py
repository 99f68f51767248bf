"""Commands on a finished package: `autopipe inspect`, `export` and `bench`."""

from pathlib import Path
from typing import Annotated

import typer

from autopipe.cli.options import Json
from autopipe.cli.terminal import print_lines, show_json
from autopipe.errors import ConfigError

PackageOrFolder = Annotated[
    Path, typer.Argument(help="A package, or a folder of `autopipe export`")
]


def inspect(package: PackageOrFolder, *, as_json: Json = False) -> None:
    """Print the inputs, outputs and requirements of a package.

    Every byte of it is checked, and nothing is loaded.
    """
    from autopipe.export.examine_folder import examine_folder
    from autopipe.packaging.examine import examine_package
    from autopipe.packaging.inspect import describe_package, summarize_package

    examined_package = examine_folder(package) if package.is_dir() else examine_package(package)
    if as_json:
        show_json(summarize_package(examined_package))
    else:
        print_lines(describe_package(examined_package))


Folder = Annotated[Path | None, typer.Option(metavar="DIR", help="The folder to write, a new one")]
Wheel = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Write the wheel `autopipe-run` there, for any package"),
]


def export(  # noqa: PLR0913 -- one for each option
    package: Annotated[
        Path | None, typer.Argument(help="A package, such as dist/squeezenet.tar")
    ] = None,
    *,
    to: Folder = None,
    wheel: Wheel = None,
    case: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.npz", help="Inputs that become a case of its self-test; may be repeated"
        ),
    ] = None,
    runtime: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="TVM's runtime for another machine: a wheel, or a folder of them; may be repeated",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The model of the package: its cases are answered by the reference runtime",
        ),
    ] = None,
) -> None:
    """Write a package as a folder that runs on a Linux with nothing else installed.

    It has a C library with its header, TVM's runtime, a program `bin/run`, and cases with which
    `bin/run --self-test` checks the model where it runs. A package for another kind of machine
    takes `--runtime` and `--model`. The wheel opens packages and needs NumPy. Both take a compiler.
    """
    from autopipe.export.cases import read_origin
    from autopipe.export.folder import export_package
    from autopipe.export.wheel import build_wheel

    if (package is None) != (to is None) or (package is None and wheel is None):
        raise ConfigError("name a package and --to DIR, or --wheel DIR")
    if package is not None and to is not None:
        exported_folder = export_package(package, to, case or (), wheels=runtime or (), model=model)
        print_lines([f"wrote {exported_folder}, with cases of {read_origin(exported_folder)}"])
    if wheel is not None:
        print_lines([f"wrote {build_wheel(wheel)}"])


def bench(  # noqa: PLR0913 -- one for each option
    package: PackageOrFolder,
    *,
    seconds: Annotated[float, typer.Option(min=0.01, help="How long to measure")] = 5.0,
    warmup: Annotated[float, typer.Option(min=0, help="Seconds of calls before that")] = 1.0,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Of each instance  [as it was tuned]")
    ] = None,
    callers: Annotated[int, typer.Option(min=1, help="Threads that call at the same time")] = 1,
    instances: Annotated[
        int | None, typer.Option(min=1, help="Calls that run at the same time  [callers]")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="[NAME=]FILE.npy", help="An input  [zeros]"),
    ] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            metavar="INPUT[:AXIS]=N,...",
            help="Sizes of a dynamic dimension, measured one after another  [largest]",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure latency and throughput of a package, as its exported program runs it."""
    from autopipe.export.bench import bench_package

    options = {"--seconds": seconds, "--warmup": warmup, "--callers": callers}
    options |= {"--threads": threads or 0, "--instances": instances or 0}
    words = [word for name, value in options.items() if value for word in (name, f"{value:g}")]
    words += [word for text in inputs or () for word in ("--input", text)]
    words += [word for text in sizes or () for word in ("--size", text)]
    print_lines(bench_package(package, [*words, *(["--json"] if as_json else [])]).splitlines())
