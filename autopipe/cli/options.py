"""Arguments and options of several commands."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from autopipe.cli.terminal import print_warning
from autopipe.errors import ConfigError

if TYPE_CHECKING:
    from autopipe.lock.mode import Mode
    from autopipe.pipeline.events import Event
    from autopipe.remote.depot import Depot
    from autopipe.signing.signers import Signers
    from autopipe.store.locks import Patience

File = Annotated[Path, typer.Argument(help="A pipeline file, such as pipelines/squeezenet.yaml")]
_SET = "Set a field, such as tuning.budget.trials=64; may be repeated"
Set = Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help=_SET)]
BuildName = Annotated[
    str | None, typer.Option("--build", metavar="NAME", help="Which of the file's `builds`")
]
StoreRoot = Annotated[
    Path | None, typer.Option("--store", help="Where results are kept  [.autopipe]")
]
Url = Annotated[
    str | None, typer.Argument(help="Where it is: s3://..., gs://..., https://..., or a folder")
]
Remote = Annotated[
    str | None, typer.Option("--remote", metavar="URL", help="A remote, and not the store")
]
Pipeline = Annotated[
    Path | None,
    typer.Option("--pipeline", metavar="FILE", help="Take `cache.remote` of this pipeline file"),
]
LockTimeout = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="Give up when another run takes longer than this"),
]
Reports = Annotated[
    list[Path] | None,
    typer.Option(
        "--report",
        metavar="PATH",
        help="Write a report: .html, .json, .xml (JUnit) or .md; may be repeated",
    ),
]
SignersFile = Annotated[
    Path | None,
    typer.Option(
        "--signers",
        metavar="FILE",
        help="Allowed signers, as in ssh-keygen(1); one must have signed",
    ),
]
Identity = Annotated[str | None, typer.Option(metavar="NAME", help="Accept this signer only")]
Revoked = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Keys that are not accepted any more")
]
Target = Annotated[
    Path, typer.Argument(metavar="PACKAGE|FOLDER|LOCK", help="Such as dist/squeezenet.tar")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else")]


def choose_remote(url: str | None, pipeline: Path | None) -> str:
    """Choose the remote of a command. Raises ConfigError if none is named, or two."""
    from autopipe.config.cache import resolve_remote_url
    from autopipe.config.load import load_builds

    if (url is None) == (pipeline is None):
        raise ConfigError("name one remote: a URL, a folder, or --pipeline FILE")
    if pipeline is None:
        return str(url)
    remotes = {build.cache.remote for build in load_builds(pipeline).values()}
    remote = remotes.pop() if len(remotes) == 1 else None
    if remote is None:
        problem = "differs from build to build" if remotes else "is null"
        raise ConfigError(f"{pipeline}: cache.remote {problem}; name a URL or a folder")
    return resolve_remote_url(remote, pipeline.absolute().parent)


@contextmanager
def open_remote(url: str) -> "Iterator[Depot]":
    """Open a remote with a temporary folder of its own."""
    from autopipe.remote.depot import open_depot

    with TemporaryDirectory() as tmp, open_depot(url, Path(tmp)) as depot:
        yield depot


def build_signers(
    file: Path | None, identity: str | None, revoked: Path | None
) -> "Signers | None":
    """Build the allowed signers from options; None without them. Raises ConfigError."""
    if file is not None:
        from autopipe.signing.signers import Signers

        return Signers(file, identity, revoked)
    if identity is not None or revoked is not None:
        raise ConfigError("--identity and --revoked say more of --signers, which is not there")
    return None


def choose_lock_mode(options: Mapping[str, bool]) -> "Mode":
    """Choose the lock mode from mutually exclusive options. Raises ConfigError."""
    from autopipe.lock.mode import Mode

    modes = [name for name, given in options.items() if given]
    if len(modes) > 1:
        raise ConfigError("give one of --locked, --frozen, --update and --no-lock")
    return Mode(modes[0]) if modes else Mode.AUTO


def make_patience() -> "Patience":
    """Create a patience without time limit that reports on stderr which run it waits for."""
    from autopipe.store.locks import Patience

    return Patience(lambda holder: print_warning(f"store: waiting for {holder}"))


def print_warnings(event: "Event") -> None:
    """Print warnings on stderr, and no other events."""
    from autopipe.pipeline.events import Warn

    if isinstance(event, Warn):
        print_warning(f"{event.stage}: {event.message}")


def is_lock(path: Path) -> bool:
    """Whether a file is a lock, by its name or its first bytes."""
    from autopipe.lock import recognize

    try:
        return path.suffix == ".lock" or recognize.is_lock(recognize.read_head(path))
    except ConfigError:  # opening the file reports it
        return False
