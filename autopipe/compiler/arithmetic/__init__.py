"""Legalizations of Relax ops with wrong, slow or undefined arithmetic in TVM."""
