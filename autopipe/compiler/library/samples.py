"""Inputs of a model in a file that a user made: arrays by name, as `numpy.savez` writes them.

Only the model's inputs are read from the file, and an array only if its header states exactly the
shape and dtype that the model takes.
"""

import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import IO, Final

import numpy as np
from numpy.lib import format as npy

from autopipe import foreign
from autopipe.artifacts.signature import Port
from autopipe.compiler.library.ports import describe_port, solve_sizes
from autopipe.config.dimension import Dimension, Sizes
from autopipe.config.problem import format_value
from autopipe.config.suggestion import find_closest
from autopipe.errors import ConfigError

SUFFIX: Final = ".npz"

_AROUND: Final = 1 << 20
"""Bytes of headers, at most."""
_UNNAMED: Final = "arr_0"
"""Name of the first unnamed array in `numpy.savez`."""
_HEADERS: Final = {(1, 0): (2, npy.read_array_header_1_0), (2, 0): (4, npy.read_array_header_2_0)}
"""By version: bytes of the length field, and the parser."""
_LONGEST_HEADER: Final = 10_000
"""Bytes; numpy takes no longer ones."""


def load(
    path: Path, ports: Sequence[Port], limits: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Read an array for each input of a model from a `.npz` file.

    `limits` is the number of rows that an input indexes. Raises ConfigError, in a line
    that names the file, where an input is missing or does not fit, and for what is no such file.
    """
    with _open_archive(path, sum(_count_bytes(port) for port in ports)) as archive:
        members = _map_members(archive, ports)
        _check_names(members, ports)
        arrays = {port.name: _read_array(archive, members[port.name], port) for port in ports}
        for name, limit in (limits or {}).items():
            _check_limit(name, arrays[name], limit)
    return arrays


def check_file(
    path: Path, ports: Sequence[Port], dimensions: Mapping[str, Dimension] = MappingProxyType({})
) -> None:
    """Raise ConfigError unless a `.npz` file has these inputs; other arrays are ignored.

    `dimensions` are the dynamic dimensions of the model; `read_sizes` returns their sizes in a
    file.
    """
    with _open_archive(path) as archive:
        members = _map_members(archive, ports)
        sizes = _read_sizes(archive, members, ports, dimensions)
        for port in (port.at(sizes) for port in ports):
            if port.name not in members:
                raise ConfigError(_describe_missing(port, members))
            with archive.open(members[port.name]) as member:
                _check_header(member, port)


def read_sizes(path: Path, ports: Sequence[Port], dimensions: Mapping[str, Dimension]) -> Sizes:
    """Read the dynamic sizes of the inputs in a `.npz` file.

    Raises ConfigError where an input is missing or the model does not take a size.
    """
    with _open_archive(path) as archive:
        return _read_sizes(archive, _map_members(archive, ports), ports, dimensions)


def _read_sizes(
    archive: zipfile.ZipFile,
    members: Mapping[str, str],
    ports: Sequence[Port],
    dimensions: Mapping[str, Dimension],
) -> Sizes:
    shapes = {}
    for port in ports:
        if port.dimensions and port.name not in members:
            raise ConfigError(_describe_missing(port, members))
        if port.dimensions:
            with archive.open(members[port.name]) as member:
                shapes[port.name] = _read_header(member, port.name)[0]
    return solve_sizes(ports, dimensions, shapes)


@contextmanager
def _open_archive(path: Path, array_bytes: int | None = None) -> Iterator[zipfile.ZipFile]:
    """Open a `.npz` file, and check its size against `array_bytes` if that is known."""
    try:
        with foreign.open_regular_file(path) as file:
            _check_size(os.fstat(file.fileno()).st_size, array_bytes)
            with zipfile.ZipFile(file) as archive:
                yield archive
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001 - zipfile and numpy raise many types
        raise ConfigError(f"{path}: not a .npz file: {format_value(error, 200)}") from None


def _check_size(size: int, array_bytes: int | None) -> None:
    """Raise ConfigError for a file that is larger than its arrays."""
    if array_bytes is not None and size > array_bytes + array_bytes // 100 + _AROUND:
        raise ConfigError(
            f"{size} bytes are more than the inputs of the model, {array_bytes} bytes"
        )


def _map_members(archive: zipfile.ZipFile, ports: Sequence[Port]) -> dict[str, str]:
    """Map the name of each array to its member of the archive."""
    members = archive.namelist()
    members_by_name = {member.removesuffix(".npy"): member for member in members}
    if len(members_by_name) < len(members):
        raise ConfigError("two arrays have one name")
    if len(ports) == 1 and list(members_by_name) == [_UNNAMED]:
        return {ports[0].name: members_by_name[_UNNAMED]}
    return members_by_name


def _check_names(members: Mapping[str, str], ports: Sequence[Port]) -> None:
    names = [port.name for port in ports]
    for port in ports:
        if port.name not in members:
            raise ConfigError(_describe_missing(port, members))
    for name in members:
        if name not in names:
            closest_name = find_closest(name, names)
            hint = (
                f"did you mean '{format_value(closest_name)}'?"
                if closest_name
                else f"it takes {_format_names(names)}"
            )
            raise ConfigError(f"the model has no input '{format_value(name)}'; {hint}")


def _read_array(archive: zipfile.ZipFile, name: str, port: Port) -> np.ndarray:
    with archive.open(name) as member:
        fortran = _check_header(member, port)
        data = member.read(_count_bytes(port))
        if len(data) < _count_bytes(port) or member.read(1):
            raise ConfigError(
                f"input '{format_value(port.name)}': its data is not as long as it says"
            )
    flat = np.frombuffer(data, port.dtype)
    return np.array(flat.reshape(port.shape, order="F" if fortran else "C"), order="C")


def _check_header(member: IO[bytes], port: Port) -> bool:
    """Tell whether an array is in Fortran order. Raises ConfigError if it does not fit."""
    shape, fortran, dtype = _read_header(member, port.name)
    if shape != port.shape or dtype != np.dtype(port.dtype):
        raise ConfigError(
            f"input '{format_value(port.name)}' is {format_value(dtype)} "
            f"{format_value(list(shape))}; "
            f"the model takes {describe_port(port)}"
        )
    return bool(fortran)


def _read_header(member: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    width, read = _HEADERS[npy.read_magic(member)]
    size = member.read(width)
    if int.from_bytes(size, "little") > _LONGEST_HEADER:  # numpy reads it before it looks
        raise ConfigError(f"input '{format_value(name)}': no array has a header as long as it says")
    return read(BytesIO(size + member.read(int.from_bytes(size, "little"))))


def _check_limit(name: str, array: np.ndarray, limit: int) -> None:
    """Raise ConfigError for an index out of range; a table of one row may be of unknown size."""
    if limit > 1 and array.size and not -limit <= array.min() <= array.max() < limit:
        worst = array.max() if array.max() >= limit else array.min()
        raise ConfigError(
            f"input '{format_value(name)}' holds {worst}, and selects from {limit} entries"
        )


def _describe_missing(port: Port, members: Mapping[str, str]) -> str:
    available = f"there is {_format_names(list(members))}" if members else "there is nothing"
    return f"input '{format_value(port.name)}' {describe_port(port)} is missing; {available}"


def _count_bytes(port: Port) -> int:
    return int(np.prod(port.shape, dtype=np.int64)) * np.dtype(port.dtype).itemsize


def _format_names(names: Sequence[str]) -> str:
    return format_value(", ".join(names), 200)
