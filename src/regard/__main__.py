"""`python -m regard` is the command `regard`."""

import sys


def run() -> None:
    """The command; interrupted while it is still being loaded, it ends as it does later."""
    try:
        from regard.cli.main import main

        main()
    except KeyboardInterrupt:
        print("regard: interrupted", file=sys.stderr)  # noqa: T201
        sys.exit(130)


if __name__ == "__main__":
    run()
