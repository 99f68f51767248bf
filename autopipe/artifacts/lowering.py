"""The artifact of the stage *lower*: a module, and with dynamic shapes one per specialized size.

`module.json` serves every size. `module.0.json`, `module.1.json` and so on are the same model at
one size each, equal to that of a static build for that size.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import StringConstraints

from autopipe.artifacts.document import ArtifactDocument, Part
from autopipe.config.dimension import Sizes

WHOLE: Final = "module.json"
"""The module for every size, or that of a model with static shapes."""


class SizedModule(Part, frozen=True):
    """A module for one size."""

    file: Annotated[str, StringConstraints(pattern=r"^module\.[0-7]\.json$")]
    sizes: dict[str, int]
    """The size of each dimension."""

    @property
    def label(self) -> str:
        """Return the suffix of the names of its tasks, such as `640x640`."""
        return "x".join(map(str, self.sizes.values()))

    @property
    def library(self) -> str:
        """Return the name of the library for this size: `lib.0.so` of `module.0.json`."""
        return f"lib{self.file.removeprefix('module').removesuffix('.json')}.so"


class SizedModules(ArtifactDocument, frozen=True):
    """The modules for specialized sizes, in order. A model with static shapes has no such file."""

    FILE: ClassVar[str] = "sizes.json"

    modules: tuple[SizedModule, ...]

    @classmethod
    def of(cls, likely: Sequence[Sizes]) -> "SizedModules":
        """Return the modules for these sizes."""
        return cls(
            modules=tuple(
                SizedModule(file=f"module.{place}.json", sizes=dict(sizes))
                for place, sizes in enumerate(likely)
            )
        )

    @classmethod
    def within(cls, folder: Path) -> "SizedModules":
        """Read them from an artifact of *lower*; none with static shapes."""
        return cls.read(folder) if (folder / cls.FILE).exists() else cls(modules=())
