"""Locate the model file beside the pipeline file, or inside an installed package."""

from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from autopipe.config.model import Model
from autopipe.config.problem import format_value
from autopipe.config.suggestion import suggest_name
from autopipe.errors import ConfigError

PACKAGE = "pkg:"
"""Prefix of a path into an installed package."""


def find_model_path(model: Model, base: Path) -> Path:
    """Return the absolute path of the model file; relative ones start at the folder `base`.

    Raises ConfigError if there is no such file.
    """
    try:
        return locate_model_file(model.path, base)
    except ConfigError as error:
        raise ConfigError(f"model.path: {error}") from error


def locate_model_file(name: str, base: Path) -> Path:
    """Return the absolute path of a file by its path from `base`, or by `pkg:package/path`.

    Raises ConfigError if there is no such file.
    """
    if name.startswith(PACKAGE):
        return _check_existing(name, _find_in_package(name))
    return _check_existing(name, (base / name).absolute())


def _find_in_package(name: str) -> Path:
    package, _, inside = name.removeprefix(PACKAGE).partition("/")
    steps = PurePosixPath(inside)
    if not package.isidentifier() or not steps.parts:
        raise _build_error(name, "is not pkg:package/path/of/the/file")
    if ".." in steps.parts or steps.is_absolute():
        raise _build_error(name, "leads out of the package; leave out `..` and double slashes")
    folders = _find_package_folders(package)
    if not folders:
        raise _build_error(
            name, f"needs the Python package {format_value(package)}, which is not installed"
        )
    return next(
        (folder / steps for folder in folders if (folder / steps).exists()), folders[0] / steps
    )


def _find_package_folders(package: str) -> list[Path]:
    """Find the folders of a package without importing it; empty if it is not installed."""
    try:
        spec: ModuleSpec | None = find_spec(package)
    except ValueError:  # a loaded module without a file
        spec = None
    return [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]


def _check_existing(name: str, path: Path) -> Path:
    try:
        if path.is_file():
            return path
        if path.exists():
            raise _build_error(name, f"is {format_value(path, 4096)}, which is not a file")
        siblings = (
            [sibling.name for sibling in path.parent.iterdir()] if path.parent.is_dir() else None
        )
    except (OSError, ValueError) as error:
        raise _build_error(name, f"cannot be read: {format_value(error)}") from error
    if siblings is None:
        raise _build_error(
            name, f"does not exist, nor does the folder {format_value(path.parent, 4096)}"
        )
    hint = suggest_name(path.name, siblings)
    raise _build_error(name, f"is not in {format_value(path.parent, 4096)}{hint}")


def _build_error(name: str, message: str) -> ConfigError:
    return ConfigError(f"'{format_value(name, 4096)}' {message}")
