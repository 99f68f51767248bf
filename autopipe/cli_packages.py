"""Commands on a package: `autopipe verify` and `autopipe infer`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autopipe.cli_options import Json
from autopipe.errors import GateError
from autopipe.report.escape import escape
from autopipe.terminal import show, show_json

if TYPE_CHECKING:
    from autopipe.packaging.examine import Examined


def verify(
    package: Annotated[Path, typer.Argument(help="A package, such as dist/squeezenet.tar")],
    *,
    lock: Annotated[Path | None, typer.Option(help="Compare it with what this lock says")] = None,
    as_json: Json = False,
) -> None:
    """Check every byte of a package against its manifest, without running any of it."""
    from autopipe.lock import file
    from autopipe.packaging.examine import examine

    locked = None if lock is None else file.read(lock)
    found = examine(package)
    differ = [] if locked is None else found.differences(locked.artifacts)
    if as_json:
        document = {name: getattr(found, name) for name in ("name", "format", "sha256")}
        files = {name: each.model_dump() for name, each in found.files.items()}
        needs = found.needs.model_dump(mode="json")
        show_json({**document, "files": files, "needs": needs, "differs": differ})
    else:
        show(escape(line) for line in _lines(found))
        if locked is not None and not differ:
            show([f"equal to {lock}"])
    if differ:
        raise GateError("\n".join([f"{package} is sound, but not what {lock} says:", *differ]))


def infer(
    package: Annotated[Path, typer.Argument(help="A package, such as dist/squeezenet.tar")],
    inputs: Annotated[
        list[str], typer.Option("--input", metavar="[NAME=]FILE.npy", help="An input array")
    ],
    output: Annotated[Path | None, typer.Option(help="Folder to save the outputs in")] = None,
) -> None:
    """Run a package once, on arrays in files."""
    from autopipe.packaging.infer import infer as run_once

    show(run_once(package, inputs, output).split("\n"))


def _lines(found: "Examined") -> Iterator[str]:
    needs = found.needs
    yield f"{found.name}: format {found.format}, sha256 {found.sha256}"
    for name, file in sorted(found.files.items()):
        yield f"  {name:<24} {file.size:>12}  {file.sha256}"
    processor = needs.processor
    machine = filter(None, [processor.machine, processor.mcpu, processor.gpu])
    yield f"compiled for {' '.join(machine)}"
    yield f"runs with {', '.join(f'{name} {version}' for name, version in needs.runtime.items())}"
    yield f"compared with {needs.verification or 'nothing'}"
    yield f"sound: {len(found.files)} files, each as the manifest says"
