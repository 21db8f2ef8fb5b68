"""EVALB, the program behind the F1 of Table 4: how it reads, what it counts, what it prints."""
