"""The command line: one short function per command. Results on stdout, progress on stderr."""
