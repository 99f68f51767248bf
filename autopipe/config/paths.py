"""Where the model file is: beside the pipeline file, or inside an installed package."""

from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from autopipe.config.model import Model
from autopipe.config.problem import shown
from autopipe.config.suggestion import closest
from autopipe.errors import ConfigError

PACKAGE = "pkg:"
"""How a path begins that leads into an installed package."""


def model_path(model: Model, base: Path) -> Path:
    """Return the absolute path of the model file; relative ones start at the folder `base`.

    Raises ConfigError if there is no such file.
    """
    try:
        return located(model.path, base)
    except ConfigError as error:
        raise ConfigError(f"model.path: {error}") from error


def located(name: str, base: Path) -> Path:
    """Return the absolute path of a file by its path from `base`, or by `pkg:package/path`.

    Raises ConfigError if there is no such file.
    """
    if name.startswith(PACKAGE):
        return _existing(name, _in_package(name))
    return _existing(name, (base / name).absolute())


def _in_package(name: str) -> Path:
    package, _, inside = name.removeprefix(PACKAGE).partition("/")
    steps = PurePosixPath(inside)
    if not package.isidentifier() or not steps.parts:
        raise _wrong(name, "is not pkg:package/path/of/the/file")
    if ".." in steps.parts or steps.is_absolute():
        raise _wrong(name, "leads out of the package; leave out `..` and double slashes")
    folders = _folders(package)
    if not folders:
        raise _wrong(name, f"needs the Python package {shown(package)}, which is not installed")
    return next(
        (folder / steps for folder in folders if (folder / steps).exists()), folders[0] / steps
    )


def _folders(package: str) -> list[Path]:
    """Return where an installed package lies, without importing it; nowhere if it is not there."""
    try:
        spec: ModuleSpec | None = find_spec(package)
    except ValueError:  # a module that is loaded, but from no file
        spec = None
    return [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]


def _existing(name: str, path: Path) -> Path:
    try:
        if path.is_file():
            return path
        if path.exists():
            raise _wrong(name, f"is {shown(path, 4096)}, which is not a file")
        siblings = (
            [sibling.name for sibling in path.parent.iterdir()] if path.parent.is_dir() else None
        )
    except (OSError, ValueError) as error:
        raise _wrong(name, f"can not be read: {shown(error)}") from error
    if siblings is None:
        raise _wrong(name, f"does not exist, nor does the folder {shown(path.parent, 4096)}")
    meant = closest(path.name, siblings)
    hint = f"; did you mean `{shown(meant)}`?" if meant else ""
    raise _wrong(name, f"is not in {shown(path.parent, 4096)}{hint}")


def _wrong(name: str, message: str) -> ConfigError:
    return ConfigError(f"'{shown(name, 4096)}' {message}")
