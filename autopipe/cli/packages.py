"""Commands on packages and locks: `autopipe combine`, `sign` and `infer`."""

from io import BytesIO
from pathlib import Path
from typing import Annotated

import typer

from autopipe.cli.options import Identity, Revoked, SignersFile, Target, build_signers, is_lock
from autopipe.cli.terminal import print_lines


def combine(
    packages: Annotated[
        list[Path], typer.Argument(help="Packages of one model for several processors")
    ],
    *,
    output: Annotated[Path, typer.Option(metavar="FILE.tar", help="The package to write")],
) -> None:
    """Combine builds of one model for several processors into one package.

    Opening it loads the best build for the processor.
    """
    from autopipe.packaging.combine import combine_packages

    print_lines([f"wrote {output}: {', '.join(combine_packages(packages, output))}"])


def sign(
    target: Target,
    *,
    key: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="SSH key; the public one if an agent has the private one"
        ),
    ],
) -> None:
    """Sign a package, an exported folder, or a lock with its records.

    The signature is a file beside it. Needs ssh-keygen.
    """
    from autopipe.lock import file
    from autopipe.lock.text import parse_lock
    from autopipe.packaging import archive
    from autopipe.packaging.examine import examine_package
    from autopipe.signing.sign import sign_file as made
    from autopipe.signing.signature import SignedKind, copy_of

    if is_lock(target):
        text = file.read_text(target)
        file.read_records(target, parse_lock(text, target))
        signature = made(BytesIO(text.encode()), target, SignedKind.LOCK, key)
    elif target.is_dir():
        from autopipe.export.folder import DIGESTS
        from autopipe.export.verify_folder import read_digests, verify_folder

        digests = read_digests(target)
        verify_folder(target, digests)
        signature = made(BytesIO(digests), target / DIGESTS, SignedKind.FOLDER, key)
    else:
        with archive.open_archive_file(target) as source, copy_of(source) as copy:
            examine_package(target, copy)
            signature = made(copy, target, SignedKind.PACKAGE, key)
    print_lines([f"wrote {signature}"])


def infer(  # noqa: PLR0913, PLR0917 -- one for each option
    package: Annotated[Path, typer.Argument(help="A package, such as dist/squeezenet.tar")],
    inputs: Annotated[
        list[str],
        typer.Option(
            "--input",
            metavar="[NAME=]FILE.npy",
            help="An input array, named where there are several; or one FILE.npz with all of them",
        ),
    ],
    output: Annotated[Path | None, typer.Option(help="Folder to save the outputs in")] = None,
    signers: SignersFile = None,
    identity: Identity = None,
    revoked: Revoked = None,
) -> None:
    """Run a package once, on arrays in files."""
    from autopipe.packaging.infer import run_inference as run_once

    allowed_signers = build_signers(signers, identity, revoked)
    print_lines(run_once(package, inputs, output, allowed_signers).split("\n"))
