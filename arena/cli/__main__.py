"""`python -m arena.cli`: the command line without an installed script."""

from arena.cli import main

main()
