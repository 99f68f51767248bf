"""LSTM, GRU and RNN: the products of the inputs as one, and the rest as one PrimFunc.

`attributes` reads what a node says, `finite` what its weights hold; `operators/recurrent.py` makes
Relax of it.
"""
