"""Repeated runs of a loaded library on the inputs of its last call, for profiles."""

from autopipe.artifacts.signature import LIBRARY
from autopipe.compiler.library.call_limit import VirtualMachine
from autopipe.compiler.library.model_instances import Instance
from autopipe.compiler.library.open_model import OpenModel


class PreparedRun:
    """The library that the last call of a model ran, with the inputs of that call."""

    def __init__(self, model: Instance) -> None:
        """Take a model that was called before."""
        if isinstance(model, OpenModel):
            self._loaded, machines = model.last_called, model.machines
        else:
            self._loaded, machines = model, {LIBRARY: model.machine}
        self.machine: VirtualMachine = self._loaded.machine
        self.library = next(name for name, machine in machines.items() if machine is self.machine)

    def __call__(self) -> None:
        """Run the library once more, and leave its outputs where they are."""
        self._loaded.repeat()
