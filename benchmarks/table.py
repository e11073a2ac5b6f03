"""Two sweeps' JSON as one Markdown table: python benchmarks/table.py 4xH200/production.json 4xH200/paper.json"""

import json
import sys
from pathlib import Path
from typing import Any


def number(value: float | None) -> str:
    """A figure, or a dash if there is none."""
    return "–" if value is None else f"{value:,.1f}"


def ratio(interval: list[float] | None) -> str:
    """median [low, high]"""
    return "–" if interval is None else f"{interval[1]:.3f} [{interval[0]:.3f}, {interval[2]:.3f}]"


def cells(found: dict[str, Any]) -> list[str]:
    """The baseline's times, and its device time over itself, in one setting."""
    return [number(found.get("call_us")), number(found.get("device_us")), ratio(found.get("device"))]


production, paper = (json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:3])
print("| problem | call µs | device µs | itself, device | of bound | paper: call µs | device µs | itself, device |")
print("|---|---|---|---|---|---|---|---|")
for large, small in zip(production, paper, strict=True):
    bound = f"{large['percent']:.0f} % {large['limiter']}" if large.get("percent") else "–"
    row = [f"{large['id']:02d} {large['problem']}", *cells(large), bound, *cells(small)]
    print(f"| {' | '.join(row)} |")
