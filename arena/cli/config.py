"""`pkb-arena config`: the settings, and the paths of all files."""

import click
import msgspec

from arena.cli.options import json_option
from arena.cli.output import print_json, print_line
from arena.errors import UsageError
from arena.paths import find_paths
from arena.settings import load_settings, setting_fields


@click.group()
def command() -> None:
    """Settings, and where pkb-arena keeps its files."""


@command.command(short_help="Print the paths of files.")
@click.argument("name", required=False)
@json_option
def path(name: str | None, as_json: bool) -> None:
    """Print the path of the settings file, or of NAME (workspace, runs, results...); `all` prints each."""
    places = {key: str(place) for key, place in find_paths().all().items()}
    if as_json:
        print_json(places if name in (None, "all") else {name: places.get(str(name))})
    elif name == "all":
        for key, place in places.items():
            print_line(f"{key:<13} {place}")
    elif (name or "settings") in places:
        print_line(places[name or "settings"])
    else:
        raise UsageError(f"there is no place {name!r}", f"choose from {', '.join(places)}, all")


@command.command()
@json_option
def show(as_json: bool) -> None:
    """Print every setting with what it means."""
    settings = load_settings(find_paths())
    if as_json:
        print_json(msgspec.structs.asdict(settings))
        return
    for field in setting_fields():
        value = getattr(settings, field.name)
        mark = " " if value == field.default else "*"
        print_line(f"{mark} {field.name:<13} {value!r:<12}  {field.description}")
    for name, model in settings.models.items():
        print_line(f"* models.{name}: {model.model} by {model.provider}")
