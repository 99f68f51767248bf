"""Expected outputs of a reference runtime, for a package that cannot run on this machine.

The package describes its model except for the path. So the model is imported once more, and the
reference runs the imported model, as in the stage *verify*.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from autopipe.artifacts.model import ImportedModel
from autopipe.artifacts.verification import Tolerance
from autopipe.config.model import Model
from autopipe.config.numerics import Numerics
from autopipe.config.paths import locate_model_file
from autopipe.config.problem import format_first_error
from autopipe.errors import ConfigError, PackageError
from autopipe.packaging.manifest import Needs
from autopipe.packaging.provenance import Source, Statement
from autopipe.verification import reference
from autopipe.verification.compare import (
    coarsen_to_floor,
    coarsen_tolerance,
    compute_rms,
    compute_tolerance,
    widen_tolerance,
)
from autopipe.verification.inputs import Case, nudged
from autopipe.verification.oracle import Oracle, ReferenceAnswer, compute_finite_share
from autopipe.verification.rounding import round_weights

_MOVES = 3
"""Number of perturbations of the inputs that estimate the spread of correct results."""
_INSIDE = 2.0**-12
"""Relative perturbation of the inputs where the model rounds to steps."""


class ReferenceCases:
    """Computes the expected outputs of cases with a reference runtime."""

    def __init__(self, manifest: Statement, model: str, work: Path) -> None:
        """Import the model of a package; `work` is an empty folder.

        Raises ConfigError for a file that is not the model of the package, ModelError for one
        that is no model, SetupError if no reference is installed.
        """
        import_folder = work / "imported"
        import_folder.mkdir()
        _import_model(manifest, model, import_folder)
        self._oracle = _choose_reference(manifest.needs, import_folder, work)
        self._promises = ImportedModel.read(import_folder).promises
        self._typical: dict[str, float] = {}
        self.origin = ""
        """The reference and its version, after the first case."""

    def answer(self, case: Case) -> dict[str, tuple[np.ndarray, Tolerance]] | None:
        """Return each output with its tolerance; None for an edge case that the model rejects.

        Random cases come first: an output's magnitude there bounds its tolerance on edges.
        """
        (answer,), reference_run = self._oracle.ask([case])
        self.origin = self.origin or f"{reference_run.engine} {reference_run.version}"
        if case.edge and (answer.refusal is not None or compute_finite_share(answer) < 1):
            return None
        if not case.edge:
            for name, array in answer.items():
                self._typical[name] = max(compute_rms(array), self._typical.get(name, 0.0))
        nudged_answers = self._ask_nudged_cases(case)
        return {
            name: (array, self._compute_tolerance(case, name, array, nudged_answers))
            for name, array in answer.items()
        }

    def _ask_nudged_cases(self, case: Case) -> Sequence[ReferenceAnswer]:
        """Return answers to perturbed inputs where correct programs may differ."""
        steps = self._promises.rounds_to_steps
        if not (case.edge or steps):
            return []
        nudged_cases = (nudged(case, seed, _INSIDE if steps else 0.0) for seed in range(_MOVES))
        answers = self._oracle.opinions(list(nudged_cases))
        return [answer for answer in answers if answer is not None]

    def _compute_tolerance(
        self, case: Case, name: str, array: np.ndarray, nudged_answers: Sequence[ReferenceAnswer]
    ) -> Tolerance:
        scale = max(self._typical.get(name, 0.0), compute_rms(array))
        base = compute_tolerance(array.dtype, scale, None, None, edge=case.edge)
        tolerance = coarsen_to_floor(base, self._promises.error_floors.get(name, 0.0), scale)
        for nudged_answer in nudged_answers:
            tolerance = coarsen_tolerance(
                tolerance, widen_tolerance(base, array, nudged_answer[name]).atol
            )
        return tolerance


def _choose_reference(needs: Needs, import_folder: Path, work: Path) -> Oracle:
    """Return the reference of an imported model, with the bfloat16 weights of a package."""
    engines = reference.choose_engines("auto", import_folder)
    if not needs.rounded:
        return Oracle(import_folder, engines, work)
    folder = work / "rounded"
    folder.mkdir()
    return Oracle(folder, round_weights(needs.rounded, import_folder, folder, engines), work)


def _import_model(manifest: Statement, path: str, out: Path) -> None:
    """Write the model of a package as the artifact of *import*."""
    from autopipe.compiler.frontends.loaders import LOADERS
    from autopipe.compiler.frontends.write_imported import write_imported

    definition = manifest.predicate.build_definition
    configuration = definition.external_parameters.configuration
    variants = manifest.needs.variants
    for section in (configuration, *(variant.configuration for variant in variants)):
        if Numerics.model_validate(section.get("numerics", {})).compute:
            raise ConfigError(
                "--model: the package rounds products to bfloat16 (`numerics.compute`), "
                "and no reference does"
            )
    if any(variant.needs.rounded != manifest.needs.rounded for variant in variants):
        raise ConfigError("--model: builds of the package round different weights")
    try:
        model = Model.model_validate({**configuration["model"], "path": path})
    except (ValidationError, KeyError, TypeError) as error:
        reason = format_first_error(error) if isinstance(error, ValidationError) else f"no {error}"
        raise PackageError(f"the manifest does not describe the model: {reason}") from None
    loaded_model = LOADERS[model.format](
        _find_model(path), model.inputs, model.weights, None, model.dimensions
    )
    sources = [used for used in definition.resolved_dependencies if isinstance(used, Source)]
    if [source.digest.sha256 for source in sources] != [loaded_model.source_sha256]:
        raise ConfigError(f"--model {path}: not the model of the package, by its SHA-256")
    write_imported(loaded_model, model.dimensions, out)


def _find_model(path: str) -> Path:
    try:
        return locate_model_file(path, Path.cwd())
    except ConfigError as error:
        raise ConfigError(f"--model: {error}") from None
