"""The machine: devices, memory, threads, and the processes that share a job."""
