"""`pkb-arena config`: prints the settings and the paths of all files."""

import click
import msgspec

from arena.cli.options import json_option
from arena.cli.output import print_json, print_line
from arena.errors import UsageError
from arena.paths import find_paths
from arena.settings import TABLES, load_settings, setting_fields


@click.group()
def command() -> None:
    """Settings, and where pkb-arena keeps its files."""


@command.command(short_help="Print the paths of files.")
@click.argument("name", required=False)
@json_option
def path(name: str | None, as_json: bool) -> None:
    """Print the path of the settings file, or of NAME (workspace, runs, results...); `all` prints each."""
    places = {key: str(place) for key, place in find_paths().all().items()}
    if name not in (None, "all", *places):
        raise UsageError(f"there is no place {name!r}", f"choose from {', '.join(places)}, all")
    if as_json:
        print_json(places if name in (None, "all") else {name: places[str(name)]})
    elif name == "all":
        for key, place in places.items():
            print_line(f"{key:<13} {place}")
    else:
        print_line(places[name or "settings"])


@command.command()
@json_option
def show(as_json: bool) -> None:
    """Print every setting with its value and meaning, and the keys of tables with their defaults."""
    settings = load_settings(find_paths())
    if as_json:
        print_json(msgspec.structs.asdict(settings))
        return
    for field in setting_fields():
        value = getattr(settings, field.name)
        mark = " " if value == field.default else "*"
        print_line(f"{mark} {field.name:<14} {value!r:<12}  {field.description}")
    for table, schema in TABLES.items():
        print_line(f"\n  [{table}.NAME]")
        for field in setting_fields(schema):
            default = "(required)" if field.default is msgspec.NODEFAULT else repr(field.default)
            print_line(f"  {field.name:<14} {default:<12}  {field.description}")
    if settings.models or settings.agents:
        print_line()
    for name, model in settings.models.items():
        print_line(f"* models.{name}: {model.model} by {model.provider}")
    for name, agent in settings.agents.items():
        print_line(f"* agents.{name}: {' '.join(agent.command) or name}")
    for wrong in settings.wrong.values():
        print_line(f"! not used: {wrong.why}")
