"""The generic runner of stages with keys and artifacts; it does not depend on TVM."""
