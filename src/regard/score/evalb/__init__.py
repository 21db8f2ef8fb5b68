"""EVALB, the program behind the F1 of Table 4: its rules of reading, counting and printing."""
