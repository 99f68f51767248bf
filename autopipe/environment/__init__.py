"""The environment that results depend on besides the pipeline file: versions, target, device."""
