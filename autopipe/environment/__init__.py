"""What results depend on outside the pipeline file: versions, target, device."""
