"""What surrounds training: run directories, checkpoints, averaging, devices, the journal."""
