"""Fills the packed layouts of `kernels.layouts`, one tensor at a time; knows no model."""
