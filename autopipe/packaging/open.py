"""Open a package: everything is checked before any of its code runs."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from autopipe.artifacts.signature import NODES
from autopipe.compiler.library.arena import copy_array
from autopipe.compiler.library.runtime import WEIGHTS, Model, load_model
from autopipe.compiler.target import cpu
from autopipe.config.problem import format_value
from autopipe.errors import ConfigError, PackageError, StageError, TargetError
from autopipe.packaging.contents import PackageContents, open_signed_package, opened
from autopipe.packaging.manifest import Needs, Processor, check_runtime
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
    """Load a packaged model, which maps NumPy arrays by name to NumPy arrays by name.

    It runs on `threads` threads, at most on those of the machine: by default on
    `$TVM_NUM_THREADS`, or else on as many as it was tuned for. `instances` share its weights and
    run calls concurrently; calls of one instance are serialized. Weights are mapped, so that the
    file must not be written while the model is open; `copy_weights` copies them into private
    memory with large pages.

    A package is a program: its digests detect damage, not forgery. `signers` detects forgery: the
    path of a file of trusted signers, in the format of OpenSSH's allowed signers. Raises
    PackageError for a damaged, hostile or unsigned package and for one that this processor cannot
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
    """Return the requested number of threads, or None for that of the package."""
    if threads is not None:
        return _parse_positive("threads", threads)
    value = os.environ.get(_THREADS)
    return None if value is None else _parse_positive(f"${_THREADS}", value)


def _unpack_build(contents: PackageContents, folder: Path) -> Needs:
    """Check all files, unpack the best build for this processor, and return its requirements."""
    package_needs = contents.manifest.needs
    prefix, needs = choose_build(package_needs, cpu.list_host_features())
    check_runtime(needs.runtime)
    _check_processor(needs.processor)
    own_names = {prefix + name for name in (*list_own_libraries(needs), NODES)}
    other_names = {*list_libraries(package_needs), *NODE_MAPS} - own_names
    for name in contents.manifest.files.keys() - {WEIGHTS}:
        plain = folder / name.removeprefix(prefix)
        contents.extract(name, None if name in other_names else plain)
    contents.agree()
    return needs


def _parse_positive(name: str, value: int | str) -> int:
    """Parse a positive integer. Raises ConfigError for any other value."""
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
            from autopipe.compiler.target import gpu

            gpu.check_arch(processor.gpu)
    except TargetError as error:
        raise PackageError(str(error)) from None
