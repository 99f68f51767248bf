"""Opens a package: nothing of it is run before everything about it has been checked."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from autopipe.compiler.library.arena import copy_array
from autopipe.compiler.library.runtime import WEIGHTS, Model, load_model
from autopipe.compiler.target import cpu, gpu
from autopipe.config.problem import format_value
from autopipe.errors import ConfigError, PackageError, StageError, TargetError
from autopipe.packaging.contents import PackageContents, open_signed_package, opened
from autopipe.packaging.manifest import NODES, Needs, Processor, check_runtime
from autopipe.packaging.variants import NODE_MAPS, choose_build, list_libraries, list_own_libraries
from autopipe.signing.signers import Signers, UnsignedError

_THREADS: Final = "TVM_NUM_THREADS"


def open_package(
    package: str | Path,
    signers: Signers | str | Path | None = None,
    *,
    instances: int = 1,
    threads: int | None = None,
    copy_weights: bool = False,
) -> Model:
    """Return the packaged model: call it with numpy arrays by name, get numpy arrays by name.

    It runs on `threads` threads, if the machine has so many: by default on `$TVM_NUM_THREADS`, or
    else on as many as it was tuned for. `instances` share its weights and run calls at the same
    time; calls of one instance take turns. Weights are mapped, so that the file must not be written
    while the model is open; `copy_weights` copies them into private memory with large pages.

    A package is a program: the digests in it find damage, not forgery. `signers` finds forgery: the
    file that names them, in the form of OpenSSH's allowed signers. Raises PackageError for a
    damaged or hostile package, for one that no signer signed and for one that this processor cannot
    run, SetupError for one that needs another TVM, ConfigError for numbers below one.
    """
    count = _count_threads(threads)
    _parse_positive("instances", instances)
    if isinstance(signers, str | Path):
        signers = Signers(Path(signers))
    with (
        _open_signed(Path(package), signers) as copy,
        opened(Path(package), copy) as contents,
        tempfile.TemporaryDirectory(prefix="autopipe-") as folder,
    ):
        needs = _unpack_build(contents, Path(folder))
        weights = contents.map(WEIGHTS)
        if copy_weights:
            weights = copy_array(weights)
        try:
            return load_model(
                Path(folder), needs.signature, weights, threads=count, instances=instances
            )
        except StageError as error:
            raise PackageError(str(error)) from error


def _count_threads(threads: int | None) -> int | None:
    """Return the threads that are asked for, or None for those of the package."""
    if threads is not None:
        return _parse_positive("threads", threads)
    value = os.environ.get(_THREADS)
    return None if value is None else _parse_positive(f"${_THREADS}", value)


def _unpack_build(contents: PackageContents, folder: Path) -> Needs:
    """Check all files and unpack the libraries of the best build for this processor; return it."""
    whole = contents.manifest.needs
    prefix, needs = choose_build(whole, cpu.list_host_features())
    check_runtime(needs.runtime)
    _check_processor(needs.processor)
    own = {prefix + name for name in (*list_own_libraries(needs), NODES)}
    others = {*list_libraries(whole), *NODE_MAPS} - own
    for name in contents.manifest.files.keys() - {WEIGHTS}:
        plain = folder / name.removeprefix(prefix)
        contents.extract(name, None if name in others else plain)
    contents.agree()
    return needs


def _parse_positive(name: str, value: int | str) -> int:
    """Return a whole number from 1; raise ConfigError for anything else."""
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigError(f"{name} is {format_value(value)}; it takes a whole number from 1")
    return number


@contextmanager
def _open_signed(package: Path, signers: Signers | None) -> Iterator[BinaryIO | None]:
    try:
        with open_signed_package(package, signers) as (copy, _):
            yield copy
    except UnsignedError as error:
        raise PackageError(str(error)) from None


def _check_processor(processor: Processor) -> None:
    try:
        cpu.check_features(processor.machine, processor.mcpu, processor.features)
        if processor.gpu is not None:
            gpu.check_arch(processor.gpu)
    except TargetError as error:
        raise PackageError(str(error)) from None
