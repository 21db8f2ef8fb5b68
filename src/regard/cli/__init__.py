"""The command line: a short function for each command. Results go to stdout, progress to stderr."""
