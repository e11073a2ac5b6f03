"""`python -m screens [PROBLEM [KERNEL]]`: the app without the command line around it."""

import sys
from pathlib import Path

from screens.app import run_app

if __name__ == "__main__":
    kernel = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    sys.exit(run_app(sys.argv[1] if len(sys.argv) > 1 else "", kernel))
