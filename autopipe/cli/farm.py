"""`autopipe scheduler` and `autopipe worker`: tuning on many machines."""

from pathlib import Path
from typing import Annotated

import typer

from autopipe.cli.terminal import print_lines
from autopipe.errors import ConfigError

Certificates = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder with ca.pem, farm.pem and farm.key; $AUTOPIPE_CERTIFICATES, or"
        " ~/.config/autopipe/certificates",
    ),
]
Listen = Annotated[
    str,
    typer.Option(metavar="ADDRESS", help="tls://host:port; tcp:// for this machine alone"),
]
Scheduler = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Where the scheduler is, such as tls://farm.example:8786"),
]
Cluster = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="List the workers of a farm's scheduler instead"),
]
Label = Annotated[
    str | None, typer.Option(metavar="NAME", help="What kind of machine this is, such as zen5")
]
Made = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Write the certificates of a new farm, and do nothing else"),
]
Minutes = Annotated[
    float,
    typer.Option(metavar="MINUTES", help="How long to look for a scheduler that is not there"),
]


def scheduler(*, listen: Listen = "tls://0.0.0.0:8786", certificates: Certificates = None) -> None:
    """Hand the trials of many runs to many workers, until Ctrl-C."""
    from autopipe.api.farm import check_address
    from autopipe.farm.scheduler import run_scheduler

    folder = None if certificates is None else str(certificates)
    run_scheduler(check_address(listen), folder, lambda line: print_lines([line]))


def worker(
    *,
    scheduler: Scheduler = None,
    label: Label = None,
    certificates: Certificates = None,
    patience: Minutes = 10.0,
    make_certificates: Made = None,
) -> None:
    """Build and time what runs send to this machine, until Ctrl-C."""
    from autopipe.api import farm

    if make_certificates is not None:
        print_lines(farm.make_certificates(make_certificates))
        return
    if scheduler is None or label is None:
        raise ConfigError("a worker needs --scheduler tls://host:port and --label NAME")
    from autopipe.farm.joining import Joining
    from autopipe.farm.worker import run_worker

    joining = Joining(
        farm.check_address(scheduler), farm.check_label(label),
        None if certificates is None else str(certificates), 60.0 * patience,
    )  # fmt: skip
    run_worker(joining, lambda line: print_lines([line]))
