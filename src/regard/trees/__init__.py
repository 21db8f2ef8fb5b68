"""§6.3 Constituency trees: files of Penn bracketing, trees as token sequences, drawings."""
