"""LSTM, GRU and RNN: the input projection as one matrix product, the steps as one PrimFunc.

`attributes` reads the attributes of a node, `finite_weights` checks its weights;
`operators/recurrent.py` converts it to Relax.
"""
