"""Convert ONNX nodes to Relax: TVM's importer with the converters of `operators/`."""
