"""regard."""
