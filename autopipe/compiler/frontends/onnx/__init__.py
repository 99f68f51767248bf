"""The ONNX frontend.

    load               from a file to an imported model, in order
    reading/           the file, checked: gate, tensors, shapes, which operators may be imported
    rewriting/         the graph, cleaned up by the list of passes in `cleanup`
    control/           If, Loop and Scan: unrolled, or functions that the virtual machine calls
    conversion/        nodes, made Relax by TVM's importer with our converters
    dynamic_sizes/     sizes that are open until the model runs, or that it computes
    operator           the record of an operator; `operators/` has one file a family
    recurrent/         what LSTM, GRU and RNN have in common
    facts/             what a graph says of its model: hints of sizes, promises, moments of weights

`docs/guides/extending.md` shows how to add an operator and a clean-up pass.
"""
