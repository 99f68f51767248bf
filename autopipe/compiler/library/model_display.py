"""Display a loaded model: in a Python shell, and as HTML in a notebook."""

from autopipe.artifacts.signature import Signature
from autopipe.compiler.library.ports import describe_port
from autopipe.config.problem import format_value


class Described:
    """Shows the inputs and outputs of its signature."""

    signature: Signature

    def __repr__(self) -> str:
        inputs, outputs = (
            ", ".join(f"{format_value(port.name)}: {describe_port(port)}" for port in ports)
            for ports in (self.signature.inputs, self.signature.outputs)
        )
        return f"{type(self).__name__}({inputs}) -> ({outputs})"

    def _repr_html_(self) -> str:
        """Return a table of the inputs and outputs; Jupyter calls it."""
        from html import escape

        ports = [("input", port) for port in self.signature.inputs]
        ports += [("output", port) for port in self.signature.outputs]
        rows = "".join(
            f"<tr><td>{kind}</td><td>{escape(format_value(port.name))}</td>"
            f"<td>{escape(describe_port(port))}</td></tr>"
            for kind, port in ports
        )
        head = "<tr><th></th><th>name</th><th>dtype and shape</th></tr>"
        return f"<table>{head}{rows}</table>"
