"""`python -m screens`: the app without the command line around it."""

import sys

from screens.app import run_app

if __name__ == "__main__":
    sys.exit(run_app())
