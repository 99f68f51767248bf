"""Commands on packages and locks: `autopipe verify`, `sign` and `infer`."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autopipe.cli_options import Identity, Json, Revoked, SignersFile, signers_of
from autopipe.errors import ConfigError, GateError
from autopipe.report.escape import escape
from autopipe.terminal import show, show_json

if TYPE_CHECKING:
    from autopipe.lock.lock import Lock
    from autopipe.packaging.examine import Examined
    from autopipe.signing.signers import Signer, Signers

Target = Annotated[Path, typer.Argument(metavar="PACKAGE|LOCK", help="Such as dist/squeezenet.tar")]


def verify(  # noqa: PLR0913 -- one for each option
    target: Target,
    *,
    lock: Annotated[Path | None, typer.Option(help="Compare it with what this lock says")] = None,
    signers: SignersFile = None,
    identity: Identity = None,
    revoked: Revoked = None,
    as_json: Json = False,
) -> None:
    """Check every byte of a package against its manifest, or of a lock; nothing of it is run.

    With --signers, one of them has to have signed it; with --lock, that lock.
    """
    whose = signers_of(signers, identity, revoked)
    if not _is_lock(target):
        _verify_package(target, lock, whose, as_json=as_json)
    elif lock is None:
        _verify_lock(target, whose, as_json=as_json)
    else:
        raise ConfigError("--lock compares a package with a lock, and this is a lock")


def sign(
    target: Target,
    *,
    key: Annotated[
        Path, typer.Option(metavar="FILE", help="SSH key; a public one if an agent has it")
    ],
) -> None:
    """Sign a package, or a lock with its records, in a file beside it; needs ssh-keygen."""
    from autopipe.lock import file
    from autopipe.lock.text import parse
    from autopipe.packaging import archive
    from autopipe.packaging.examine import examine
    from autopipe.signing.sign import sign as made
    from autopipe.signing.signature import Kind, copy_of

    if _is_lock(target):
        text = file.read_text(target)
        file.read_records(target, parse(text, target))
        signature = made(BytesIO(text.encode()), target, Kind.LOCK, key)
    else:
        with archive.source(target) as source, copy_of(source) as copy:
            examine(target, copy)
            signature = made(copy, target, Kind.PACKAGE, key)
    show([f"wrote {signature}"])


def infer(  # noqa: PLR0913, PLR0917 -- one for each option
    package: Annotated[Path, typer.Argument(help="A package, such as dist/squeezenet.tar")],
    inputs: Annotated[
        list[str], typer.Option("--input", metavar="[NAME=]FILE.npy", help="An input array")
    ],
    output: Annotated[Path | None, typer.Option(help="Folder to save the outputs in")] = None,
    signers: SignersFile = None,
    identity: Identity = None,
    revoked: Revoked = None,
) -> None:
    """Run a package once, on arrays in files."""
    from autopipe.packaging.infer import infer as run_once

    given = signers_of(signers, identity, revoked)
    show(run_once(package, inputs, output, given).split("\n"))


def _is_lock(path: Path) -> bool:
    from autopipe.lock import recognize

    try:
        return path.suffix == ".lock" or recognize.is_lock(recognize.head(path))
    except ConfigError:  # whoever opens it says so
        return False


def _verify_package(
    package: Path, lock: Path | None, signers: "Signers | None", *, as_json: bool
) -> None:
    from autopipe.lock import file
    from autopipe.packaging.contents import signed
    from autopipe.packaging.examine import examine

    signer: Signer | None = None
    locked: Lock | None = None
    if lock is not None and signers is not None:
        locked, signer = file.read_signed(lock, signers)
    elif lock is not None:
        locked = file.read(lock)
    with signed(package, signers if lock is None else None) as (copy, found_signer):
        found = examine(package, copy)
    signer = signer or found_signer
    differ = [] if locked is None else found.differences(locked.artifacts)
    if signer is not None and locked is not None and f"{found.name}.tar" not in locked.artifacts:
        differ.append(f"{found.name}.tar: not in the lock")
    if as_json:
        document = {name: getattr(found, name) for name in ("name", "format", "sha256")}
        files = {name: each.model_dump() for name, each in found.files.items()}
        needs = found.needs.model_dump(mode="json")
        show_json(
            {
                **document,
                "files": files,
                "needs": needs,
                "differs": differ,
                "signer": _named(signer),
            }
        )
    else:
        show(escape(line) for line in _lines(found))
        if locked is not None and not differ:
            show([f"equal to {lock}"])
        if signer is not None and not differ:
            show([escape(f"{lock or package} is signed by {signer}")])
    if differ:
        raise GateError("\n".join([f"{package} is sound, but not what {lock} says:", *differ]))


def _verify_lock(path: Path, signers: "Signers | None", *, as_json: bool) -> None:
    from autopipe.lock import file

    signer: Signer | None = None
    if signers is None:
        lock = file.read(path)
    else:
        lock, signer = file.read_signed(path, signers)
    file.read_records(path, lock)
    if as_json:
        show_json({**lock.model_dump(mode="json"), "signer": _named(signer)})
        return
    records = "no records" if lock.records is None else f"records {lock.records}"
    lines = [f"{lock.pipeline}: {len(lock.tasks)} tasks, {records}"]
    lines += [f"  {name:<24} {digest}" for name, digest in sorted(lock.artifacts.items())]
    lines.append("sound: as it was written, and so are its records")
    lines += [] if signer is None else [f"{path} is signed by {signer}"]
    show(escape(line) for line in lines)


def _named(signer: "Signer | None") -> dict[str, str] | None:
    return None if signer is None else {"identity": signer.identity, "key": signer.key}


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
