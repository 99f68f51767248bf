"""Analyses and rewrites of the Relax graph, before and during lowering."""
