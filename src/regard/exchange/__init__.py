"""Import models of other tools, export models to them, and compare both models of a conversion."""
