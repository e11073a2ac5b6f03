"""Draws the README's picture: the real app, a real run of the kit's row-parallel GEMM on two CPU ranks.

    python docs/picture.py docs/arena.svg
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KERNEL = ROOT / "sandbox" / "kit" / "examples" / "gemm_allreduce_cpp.py"
SIZE = (150, 42)


async def draw(target: Path) -> None:
    """Opens problem 13 with the kernel, runs it, and exports the screen when the verdict is in."""
    from arena.paths import find_paths
    from screens.app import ArenaApp
    from screens.services import Services

    kernel = Path(tempfile.mkdtemp()) / "kernel.py"
    kernel.write_text(KERNEL.read_text(encoding="utf-8"), encoding="utf-8")
    services = Services(find_paths())
    app = ArenaApp(services, "13", kernel)
    try:
        async with app.run_test(size=SIZE) as pilot:
            await app.opened.wait()
            await pilot.pause(1.0)
            for _ in range(3):  # the first runs compile the kernel and warm the worlds
                await pilot.press("f5")
                await pilot.pause(0.3)
                while app.screen.session.state.result is None:
                    await pilot.pause(0.1)
                await pilot.pause(2.5)
            target.write_text(app.export_screenshot(title="pkb-arena"), encoding="utf-8")
    finally:
        await services.close()


if __name__ == "__main__":
    os.environ["PKB_ARENA_HOME"] = tempfile.mkdtemp()
    asyncio.run(draw(Path(sys.argv[1])))
