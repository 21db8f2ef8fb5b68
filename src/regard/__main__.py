"""`python -m regard` is the command `regard`."""

from regard.cli.main import main

main()
