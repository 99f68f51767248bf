"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

from autopipe.pipeline.events import Event, Warn
from autopipe.terminal import complain

File = Annotated[Path, typer.Argument(help="A pipeline file, such as pipelines/squeezenet.yaml")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Override a field")
]
StoreRoot = Annotated[
    Path | None, typer.Option("--store", help="Where results are kept  [.autopipe]")
]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout, and nothing else")]


def warnings(event: Event) -> None:
    """Show warnings alone, on stderr."""
    if isinstance(event, Warn):
        complain(f"warning: {event.stage}: {event.message}")
