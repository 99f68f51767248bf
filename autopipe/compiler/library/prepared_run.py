"""Runs of a loaded library alone, on the inputs of the last call, as a profile repeats them."""

from autopipe.artifacts.signature import LIBRARY
from autopipe.compiler.library.call_limit import VirtualMachine
from autopipe.compiler.library.model_instances import Instance
from autopipe.compiler.library.open_model import OpenModel


class PreparedRun:
    """The library that the last call of a model ran, with the inputs that it was given."""

    def __init__(self, model: Instance) -> None:
        """Take a model that was called."""
        if isinstance(model, OpenModel):
            self._loaded, machines = model.last_called, model.machines
        else:
            self._loaded, machines = model, {LIBRARY: model.machine}
        self.machine: VirtualMachine = self._loaded.machine
        self.library = next(name for name, one in machines.items() if one is self.machine)

    def __call__(self) -> None:
        """Run the library once more, and leave its outputs where they are."""
        self._loaded.repeat()
