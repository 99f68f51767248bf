"""LSTM, GRU and RNN: the input projection as one matrix product, the steps as one PrimFunc.

`attributes` reads the attributes of a node, `notes` adds what is known of its weights and outputs;
`operators/recurrent.py` converts it to Relax.
"""
