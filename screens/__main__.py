"""`python -m screens [PROBLEM [KERNEL]]`: the app without the command line around it."""

import sys
from pathlib import Path

from arena.errors import ArenaError
from screens.app import run_app

if __name__ == "__main__":
    kernel = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    try:
        sys.exit(run_app(sys.argv[1] if len(sys.argv) > 1 else "", kernel))
    except ArenaError as error:
        print(error.one_line, file=sys.stderr)
        sys.exit(int(error.exit_code))
