"""Legalizations of Relax ops whose arithmetic is wrong, slow or undefined in TVM."""
