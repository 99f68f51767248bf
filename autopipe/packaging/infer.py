"""Run a package once on arrays in files, in a child process, which alone imports NumPy."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autopipe.errors import PackageError, StageError
from autopipe.processes import call

if TYPE_CHECKING:
    from autopipe.signing.signers import Signers

_CHILD: Final = "autopipe.packaging.infer_program"


def run_inference(
    package: Path, inputs: Sequence[str], output: Path | None, signers: "Signers | None" = None
) -> str:
    """Run a package on `name=file.npy` inputs and return a summary, one line for each output.

    The only input of a model needs no name, and one `file.npz` may hold all inputs. With a folder
    as `output`, each output is saved there as `<name>.npy`, the name quoted as in a URL. Raises
    ConfigError for inputs that do not fit, PackageError for a package that cannot be opened or
    crashes, or without a signature of one of the `signers`.
    """
    request = {
        "package": str(package),
        "inputs": list(inputs),
        "output": None if output is None else str(output),
        "signers": None if signers is None else signers.document(),
    }
    try:
        return str(call.run_module(_CHILD, request)["summary"])
    except StageError as error:
        raise PackageError(f"{package}: running it failed: {error}") from None
