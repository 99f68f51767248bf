"""Command `autopipe init`."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autopipe.cli.terminal import print_lines

if TYPE_CHECKING:
    from autopipe.api.init import Starter


def init(
    model: Annotated[str, typer.Argument(help="An ONNX model: a file, or pkg:package/path")],
    *,
    shapes: Annotated[
        list[str] | None,
        typer.Option(
            "--shape",
            metavar="NAME=1,3,640,640",
            help="The sizes of an input that the model leaves open; may be repeated. "
            "A ? or a name in the place of a size keeps it open",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write  [MODEL.yaml, in this folder]"),
    ] = None,
    dynamic_sizes: Annotated[
        bool,
        typer.Option(
            "--open", help="Leave all other sizes dynamic, for a package that takes every"
        ),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Write it anew if it is there already")
    ] = False,
) -> None:
    """Write a pipeline file for a model.

    A size that the model leaves open and `--shape` does not give is marked with "?" in the file;
    with `--open` it has a name there, and a range.
    """
    from autopipe.api.init import write_pipeline_file as made

    starter = made(
        model, output, shapes=shapes or (), dynamic_sizes=dynamic_sizes, overwrite=overwrite
    )
    print_lines(_list_result_lines(model, starter))


def _list_result_lines(model: str, starter: "Starter") -> Iterator[str]:
    from autopipe.api.init import format_dimensions

    file = shlex.quote(str(starter.path))
    yield f"wrote {file}"
    for name, sizes in starter.inputs.items():
        if sizes.assumed:
            yield f"assumed: input '{name}', {format_dimensions(sizes.assumed)}, is a batch of 1"
        if sizes.open:
            yield f"open: input '{name}', {format_dimensions(sizes.open)}"
        if sizes.names:
            names = ", ".join(dict.fromkeys(sizes.names.values()))
            yield f"open: input '{name}', {names}: look at their ranges in the file"
    for note in starter.closed.values():
        yield f"closed: {note}"
    if not starter.open:
        yield f"next: autopipe run {file}"
        return
    shapes = (
        f"{name}={','.join('SIZE' if size is None else str(size) for size in known.shape)}"
        for name, known in starter.open.items()
    )
    options = " ".join(f"--shape {shlex.quote(shape)}" for shape in shapes)
    yield f'next: write a size for each "?" in {file}, or all anew with'
    yield f"  autopipe init {shlex.quote(model)} -o {file} --overwrite {options}"
