"""Named arrays as files of safetensors."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from autopipe.host.refusal import as_os_error

if TYPE_CHECKING:
    import numpy as np


def save(arrays: "Mapping[str, np.ndarray]", path: Path) -> None:
    """Write arrays under their names; the same arrays give the same bytes. Raises OSError."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file(dict(arrays), path)
    except SafetensorError as error:
        raise as_os_error(error, path) from error
