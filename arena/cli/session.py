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
    from arena.records.standings import Standing


@dataclass(frozen=True)
class CliSession:
    """One call of the command line."""

    paths: Paths
    settings: Settings
    catalogue: Catalogue

    def problem(self, name: str) -> Problem:
        """Returns the problem with this id, slug or stem.

        Raises:
            UsageError: there is none.
        """
        return find_problem(self.catalogue, name)

    def standings(self) -> "dict[int, Standing]":
        """Returns the user's standing by problem id; empty before the first run. Creates no files before it."""
        from arena.records.index import Store, stored  # importing sqlite3 takes time

        return stored(self.paths, Store.standings, rebuild=True) or {}


def open_session(warn: bool = False) -> CliSession:
    """Reads the settings and the catalogue. With `warn`, prints the problem folders that could not be read.

    Raises:
        SettingsError: the settings file is invalid.
    """
    paths = find_paths()
    settings = load_settings(paths)
    thunderkittens.name(settings.thunderkittens)
    catalogue = load_catalogue(settings.problem_folders)
    if warn:
        for broken in catalogue.broken:
            complain(f"a problem was left out: {broken}")
    return CliSession(paths, settings, catalogue)
