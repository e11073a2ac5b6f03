"""The owner's app in a process of its own: `python -m screens.web.owner [PROBLEM]`. Its terminal is a browser."""

import sys

from arena.errors import ArenaError


def main() -> int:
    """Runs the app until it is left. Returns the exit code."""
    from arena.cli.diagnostics import complain
    from screens.app import run_app

    try:
        return run_app("".join(sys.argv[1:2]))
    except ArenaError as error:
        complain(error.message, error.advice)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
