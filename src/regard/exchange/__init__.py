"""Models of other tools, in and out: what is read, what is written, and the proof of each."""
