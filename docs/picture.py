"""Draws the pictures: the real app, a real run of one of the kit's examples on whatever this machine has.

python docs/picture.py docs/arena.svg
python docs/picture.py docs/arena-gpu.svg 13 gemm_allreduce_overlap_cuda     # on a machine with GPUs
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "sandbox" / "kit" / "examples"
SIZE = (150, 42)


async def draw(target: Path, problem: str = "13", example: str = "gemm_allreduce_cpp") -> None:
    """Opens a problem with an example of the kit, runs it, and exports the screen when the verdict is in."""
    from arena.paths import find_paths
    from screens.app import ArenaApp
    from screens.services import Services

    kernel = Path(tempfile.mkdtemp()) / "kernel.py"
    kernel.write_text((EXAMPLES / f"{example}.py").read_text(encoding="utf-8"), encoding="utf-8")
    services = Services(find_paths())
    app = ArenaApp(services, problem, kernel)
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
    asyncio.run(draw(Path(sys.argv[1]), *sys.argv[2:4]))
