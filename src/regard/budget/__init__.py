"""The choice of a recipe for a text, a machine and a time."""
