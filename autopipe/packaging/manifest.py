"""The requirements in the manifest of a package, and the names of its files."""

from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints, field_validator

from autopipe.artifacts.document import Part
from autopipe.artifacts.numbers import Count
from autopipe.artifacts.signature import Signature
from autopipe.config.frozen import Frozen
from autopipe.config.model import Digest
from autopipe.errors import SetupError
from autopipe.host.distributions import find_installed_version

MANIFEST: Final = "manifest.json"
COMPONENTS: Final = "components.cdx.json"
WEIGHTS: Final = "weights.safetensors"

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
    """Requirements of the library on the processor."""

    machine: str
    """Architecture, such as `x86_64`."""
    mcpu: str
    """LLVM's name of the processor that it was compiled for."""
    features: tuple[str, ...]
    """LLVM's names of the features that it may use."""
    gpu: str | None = None
    """Architecture of the GPU that its kernels run on, such as `sm_90`; null for none."""


class PackagedTask(Part, frozen=True):
    """A task of a build. Times and outcomes of checks differ between builds, so it has none."""

    name: str
    workload: str
    """Hash of its loops."""
    calls: Count
    engine: str
    implementation: str


class Needs(Frozen, frozen=True):
    """Requirements of opening a package."""

    processor: Processor
    """Processor that it runs on."""
    runtime: dict[_Package, _Version]
    """Python packages it runs with, and their versions."""
    libraries: dict[_Package, _Version] = {}
    """Libraries that it calls and contains, and their versions."""
    signature: Signature
    """How it is called: inputs, outputs, weights, threads."""
    tasks: tuple[PackagedTask, ...]
    """Each fused kernel, and the origin of its schedule."""
    verification: str | None
    """Summary of the verification; null for a build without one."""
    rounded: tuple[str, ...] = ()
    """Names of the model's bfloat16 weights."""
    variants: "Annotated[tuple[Variant, ...], Field(max_length=3)]" = ()
    """Builds of the same model for other processors, in ascending order of their features."""


class Variant(Frozen, frozen=True):
    """A build of the same model for another processor, in the same package."""

    needs: Needs
    """Requirements of opening it."""
    configuration: dict[str, Any]
    """The configuration of its pipeline."""
    builder: dict[str, str]
    """Versions of autopipe and the compilers that built it."""

    @field_validator("needs")
    @classmethod
    def _is_single(cls, needs: Needs) -> Needs:
        if needs.variants:
            raise ValueError("a variant has no variants")
        return needs


def read_installed_runtime() -> dict[str, str]:
    """Return the installed versions of the Python packages that run a library."""
    return {name: _find_version(name) for name in _RUNTIME}


def check_runtime(required_versions: dict[str, str]) -> None:
    """Raise SetupError, with the packages to install, unless the versions are exactly these.

    TVM's binary interface changes between releases, and TVM does not check it.
    """
    installed_versions = {name: _find_version(name) for name in required_versions}
    if installed_versions == required_versions:
        return
    differ = [
        name for name in required_versions if installed_versions[name] != required_versions[name]
    ]
    installed_text = ", ".join(f"{name} {installed_versions[name]}" for name in differ)
    pins = " ".join(f"{name}=={required_versions[name]}" for name in required_versions)
    raise SetupError(
        f"the package was built for another runtime, here is {installed_text}: pip install {pins}"
    )


def _find_version(name: str) -> str:
    return find_installed_version(name) or "missing"
