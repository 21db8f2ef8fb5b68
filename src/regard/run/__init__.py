"""A training run: its directory, clock and resumption, its checkpoints, journal and final model."""
