"""What the stage *lower* leaves: a module, and with open sizes one for each likely size.

`module.json` serves every size. `module.0.json`, `module.1.json` and so on are the same model at
one size each, as a build for that size alone would have them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import StringConstraints

from autopipe.artifacts.document import ArtifactDocument, Part
from autopipe.config.dimension import Sizes

WHOLE: Final = "module.json"
"""The module for every size, or that of a model without open sizes."""


class SizedModule(Part, frozen=True):
    """A module for one size."""

    file: Annotated[str, StringConstraints(pattern=r"^module\.[0-7]\.json$")]
    sizes: dict[str, int]
    """The size of each dimension."""

    @property
    def label(self) -> str:
        """Return what its tasks have behind their names, such as `640x640`."""
        return "x".join(map(str, self.sizes.values()))

    @property
    def library(self) -> str:
        """Return the name of the library for this size: `lib.0.so` of `module.0.json`."""
        return f"lib{self.file.removeprefix('module').removesuffix('.json')}.so"


class SizedModules(ArtifactDocument, frozen=True):
    """The modules for likely sizes, in their order. A model without open sizes has no such file."""

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
        """Read them from an artifact of *lower*; there are none without open sizes."""
        return cls.read(folder) if (folder / cls.FILE).exists() else cls(modules=())
