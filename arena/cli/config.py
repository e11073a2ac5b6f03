"""`pkb-arena config` prints settings and paths, `pkb-arena completion` the shell's completion script."""

import click
import msgspec
from click.shell_completion import get_completion_class

from arena.cli.options import json_option
from arena.cli.output import print_found, print_json, print_line
from arena.errors import UsageError
from arena.paths import find_paths
from arena.settings import TABLES, load_settings, setting_fields


@click.group()
def config() -> None:
    """Settings, and where pkb-arena keeps its files."""


@config.command(short_help="Print the paths of files.")
@click.argument("name", required=False)
@json_option
def path(name: str | None, as_json: bool) -> None:
    """Print the path of the settings file, or of NAME (workspace, runs, results...); `all` prints each."""
    places = {key: str(place) for key, place in find_paths().all().items()}
    if name not in (None, "all", *places):
        raise UsageError(f"there is no place {name!r}", f"choose from {', '.join(places)}, all")
    wanted = places if name in (None, "all") else {name: places[str(name)]}
    lines = [f"{key:<13} {place}" for key, place in places.items()] if name == "all" else [places[name or "settings"]]
    print_found(as_json, wanted, *lines)


@config.command()
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


@click.command()
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL: bash, zsh or fish.

    \b
    bash  in ~/.bashrc: eval "$(pkb-arena completion bash)"
    zsh   in ~/.zshrc: eval "$(pkb-arena completion zsh)"
    fish  pkb-arena completion fish > ~/.config/fish/completions/pkb-arena.fish
    """
    from arena.cli import COMPLETION_VARIABLE, PROGRAM, cli

    completion = get_completion_class(shell)
    assert completion is not None  # one of click's own three
    print_line(completion(cli, {}, PROGRAM, COMPLETION_VARIABLE).source())
