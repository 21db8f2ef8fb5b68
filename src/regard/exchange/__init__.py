"""Import models of other tools, export models to them, and compare both sides of a conversion."""
