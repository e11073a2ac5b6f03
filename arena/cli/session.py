"""The folders, the settings and the catalogue of one call of the command line."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from arena.cli.diagnostics import complain
from arena.paths import Paths, find_paths
from arena.setting_choice import find_problem
from arena.settings import Settings, load_settings
from problems.catalogue import Catalogue, load_catalogue
from problems.specification import Problem
from sandbox.machine import thunderkittens

if TYPE_CHECKING:
    from arena.runs.standings import Standing


@dataclass(frozen=True)
class CliSession:
    """One call of the command line."""

    paths: Paths
    settings: Settings
    catalogue: Catalogue

    def problem(self, name: str) -> Problem:
        """The problem with this id, slug or stem.

        Raises:
            UsageError: there is none.
        """
        return find_problem(self.catalogue, name)

    def standings(self) -> "dict[int, Standing]":
        """The player's standing by problem id; empty before the first run. Creates nothing."""
        from arena.runs.store import Store, stored  # sqlite3 is not free

        return stored(self.paths, Store.standings) or {}


def open_session(warn: bool = False) -> CliSession:
    """Reads the settings and the catalogue; with `warn`, problem folders that could not be read are named.

    Raises:
        SettingsError: the settings file is not one.
    """
    paths = find_paths()
    settings = load_settings(paths)
    thunderkittens.name(settings.thunderkittens)
    catalogue = load_catalogue(settings.problem_folders)
    if warn:
        for broken in catalogue.broken:
            complain(f"a problem was left out: {broken}")
    return CliSession(paths, settings, catalogue)
