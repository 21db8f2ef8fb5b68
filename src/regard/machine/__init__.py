"""The machine: its devices, memory and threads, and the processes that share a job."""
