"""The owner's app in a process of its own: `python -m screens.web.owner [PROBLEM]`. Its terminal is a browser."""

import sys

from arena.cli import exit_code_of


def main() -> int:
    """Runs the app until it is left. Returns the exit code."""
    from screens.app import run_app

    return exit_code_of(lambda: run_app("".join(sys.argv[1:2])))


if __name__ == "__main__":
    sys.exit(main())
