"""Schedules of kernels: engines, templates, and the policy that selects among them."""
