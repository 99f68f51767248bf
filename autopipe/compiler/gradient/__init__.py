"""Gradients: of TE computes by reverse accumulation, and of Relax functions with what TVM lacks."""
