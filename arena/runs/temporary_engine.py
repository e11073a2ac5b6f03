"""An engine that keeps everything in a temporary folder: for measurements and checks whose runs are not the user's."""

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from arena.paths import paths_in
from arena.runs.engine import Engine


@asynccontextmanager
async def temporary_engine(environment: Mapping[str, str] | None = None) -> AsyncIterator[Engine]:
    """The engine; its folder is removed after it is closed. environment: variables of its referee."""
    with tempfile.TemporaryDirectory(prefix="pkb-engine-") as folder:
        async with Engine(paths_in(Path(folder)), environment=environment) as engine:
            yield engine
