"""Trees (§6.3): Penn bracketing, what is stripped from it, the sequence of a tree, drawings."""
