"""Measurements: the cost of a run, the quality of a model, the exactness of resuming."""
