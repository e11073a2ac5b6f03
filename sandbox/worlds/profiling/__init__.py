"""A world that is looked at and never timed, from outside: its start, its end, and a row of calls that the driver counts."""
