"""What a package says of itself, and the names in it."""

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field, StringConstraints, field_validator

from autopipe.artifacts.model_nodes import NodeMap
from autopipe.artifacts.signature import Signature
from autopipe.config.frozen import Frozen, Sparse
from autopipe.config.model import Digest
from autopipe.errors import SetupError

MANIFEST: Final = "manifest.json"
COMPONENTS: Final = "components.cdx.json"
WEIGHTS: Final = "weights.safetensors"
NODES: Final = NodeMap.FILE
"""The nodes of the model that kernel calls are made of; no run needs it."""

_RUNTIME = ("apache-tvm", "apache-tvm-ffi")


_Package = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
_Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+!_-]{0,99}$")]


class ManifestFile(Frozen, frozen=True):
    """A file of the package."""

    size: Annotated[int, Field(ge=0)]
    """Bytes."""
    sha256: Digest
    """Digest of the content."""


class Processor(Frozen, frozen=True):
    """What the library needs of the processor."""

    machine: str
    """Architecture, such as `x86_64`."""
    mcpu: str
    """LLVM's name of the processor it was compiled for."""
    features: tuple[str, ...]
    """LLVM's names of the features it may use."""
    gpu: str | None = None
    """Architecture of the GPU that its kernels run on, such as `sm_90`; null for none."""


class Needs(Sparse, frozen=True):
    """What opening a package takes."""

    ADDED: ClassVar[frozenset[str]] = frozenset({"rounded", "variants"})

    processor: Processor
    """Where it runs."""
    runtime: dict[_Package, _Version]
    """Python packages it runs with, and their versions."""
    libraries: dict[_Package, _Version] = {}
    """Libraries that it calls and brings along, and their versions."""
    signature: Signature
    """How it is called: inputs, outputs, weights, threads."""
    tasks: tuple[dict[str, Any], ...]
    """Each fused kernel, and where its schedule came from."""
    verification: str | None
    """What verification showed; null for a build that was not checked."""
    rounded: tuple[str, ...] = ()
    """Names of the model's weights that are rounded to bfloat16."""
    variants: "Annotated[tuple[Variant, ...], Field(max_length=3)]" = ()
    """The same model built for other processors, each for a better one than the last."""


class Variant(Frozen, frozen=True):
    """A build of the same model for another processor, in the same package."""

    needs: Needs
    """What opening it takes."""
    configuration: dict[str, Any]
    """What its pipeline asked to build."""
    builder: dict[str, str]
    """Versions of what built it."""

    @field_validator("needs")
    @classmethod
    def _is_single(cls, needs: Needs) -> Needs:
        if needs.variants:
            raise ValueError("a variant has no variants")
        return needs


def read_installed_runtime() -> dict[str, str]:
    """Return the versions of the Python packages that run a library."""
    return {name: _find_version(name) for name in _RUNTIME}


def check_runtime(wanted: dict[str, str]) -> None:
    """Raise a SetupError that says what to install, unless the versions are exactly these.

    TVM's binary interface changes between releases without a check of its own.
    """
    installed = {name: _find_version(name) for name in wanted}
    if installed == wanted:
        return
    differ = [name for name in wanted if installed[name] != wanted[name]]
    here = ", ".join(f"{name} {installed[name]}" for name in differ)
    pins = " ".join(f"{name}=={wanted[name]}" for name in wanted)
    raise SetupError(
        f"the package was built for another runtime, here is {here}: pip install {pins}"
    )


def _find_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"
