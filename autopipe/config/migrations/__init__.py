"""From one version of the pipeline file to the next, one file a step; there is one version so far.

A release that changes the grammar raises `VERSION`, adds `from_1.py` with a function from text to
text, and names it in `STEPS`. It edits lines rather than writing the file anew, so that comments
stay; the number behind `version:` is raised for it.
"""

from collections.abc import Callable, Mapping
from typing import Final

Step = Callable[[str], str]
"""Takes the text of a pipeline file of one version, and returns one of the next."""

VERSION: Final = 1
"""What is read and written now."""

STEPS: Final[Mapping[int, Step]] = {}
"""By the version that is left behind."""
