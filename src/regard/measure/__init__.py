"""Measuring: what a run will cost, how good a model is, whether resuming is exact."""
