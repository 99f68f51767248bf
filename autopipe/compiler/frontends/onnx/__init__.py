"""The ONNX frontend.

    load               the stages from a file to an imported model, in order
    reading/           checks of the file: gate, tensors, shapes, supported operators
    rewriting/         clean-up of the graph by the list of passes in `cleanup`
    control/           If, Loop and Scan: unrolled, or functions that the virtual machine calls
    conversion/        conversion of nodes to Relax by TVM's importer with our converters
    dynamic_sizes/     dynamic shapes and data-dependent shapes
    operator           the record of an operator; `operators/` has one file for each family
    recurrent/         common parts of LSTM, GRU and RNN
    facts/             facts derived from a graph: size hints, promises, moments of weights

`docs/guides/extending.md` shows how to add an operator and a clean-up pass.
"""
