"""`python -m arena.cli`: the commands of `pkb-arena` without its app."""

from arena.cli import main

main()
