"""`python -m regard` is the command `regard`."""

import sys


def run() -> None:
    """Run `regard`; if Ctrl-C interrupts the import of modules, exit with status 130."""
    try:
        from regard.cli.main import main

        main()
    except KeyboardInterrupt:
        print("regard: interrupted", file=sys.stderr)  # noqa: T201
        sys.exit(130)


if __name__ == "__main__":
    run()
