"""What the screens talk to. Opened in two steps, so that the first paint waits for neither disk nor engine."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from arena.paths import Paths
from arena.settings import Settings, save_settings
from arena.workspace import Workspace
from arena.workspace_lock import WorkspaceLock

if TYPE_CHECKING:
    from arena.engine import Engine
    from arena.store import Store
    from problems.catalogue import Catalogue
