"""Builds of one model for several processors in one package: their files and their selection.

The first build is that of the package itself, for the most basic processor. The others are its
*variants*, in ascending order of features; the last that fits the processor is loaded. Files of the
first variant are called `v1.lib.so`, `v1.lib.0.so` and so on; shared weights are stored once.
"""

from collections.abc import Collection, Iterator
from typing import Final

from autopipe.artifacts.signature import LIBRARIES, LIBRARY, NODES
from autopipe.packaging.manifest import Needs

MOST: Final = 3
"""Maximum number of variants of a package."""
FILES: Final = tuple(f"v{place}.{name}" for place in range(1, MOST + 1) for name in LIBRARIES)
"""Names of all libraries that variants may have."""
NODE_MAPS: Final = (NODES, *(f"v{place}.{NODES}" for place in range(1, MOST + 1)))
"""Names of the files that map the kernel calls of a build to nodes of the model."""


def list_builds(needs: Needs) -> Iterator[tuple[str, Needs]]:
    """Yield the builds of a package with the prefix of their files, the most basic first."""
    yield "", needs
    for place, variant in enumerate(needs.variants, 1):
        yield f"v{place}.", variant.needs


def list_own_libraries(build: Needs) -> tuple[str, ...]:
    """Return the names of the libraries of one build, without a prefix."""
    return (LIBRARY, *(entry.library for entry in build.signature.entries))


def list_libraries(needs: Needs) -> Iterator[str]:
    """Yield the names of the libraries of all builds."""
    for prefix, build in list_builds(needs):
        yield from (prefix + name for name in list_own_libraries(build))


def choose_build(needs: Needs, features: Collection[str]) -> tuple[str, Needs]:
    """Return the last build that fits a processor with these features, else the first one."""
    builds = list(list_builds(needs))
    fitting = [pair for pair in builds if set(pair[1].processor.features) <= set(features)]
    return fitting[-1] if fitting else builds[0]
