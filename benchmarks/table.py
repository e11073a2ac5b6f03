"""A sweep's JSON as a Markdown table: python benchmarks/table.py benchmarks/4xH200/production.json"""

import json
import sys
from pathlib import Path
from typing import Any


def number(value: float | None, digits: int = 1) -> str:
    """A figure, or a dash where there is none."""
    return "–" if value is None else f"{value:,.{digits}f}"


def ratio(interval: list[float] | None) -> str:
    """median [low, high]"""
    return "–" if interval is None else f"{interval[1]:.3f} [{interval[0]:.3f}, {interval[2]:.3f}]"


def row(found: dict[str, Any]) -> str:
    """One line of the table."""
    bound = f"{found['percent']:.0f} % {found['limiter']}" if found.get("percent") else "–"
    cells = [
        f"{found['id']:02d} {found['problem']}",
        found["verdict"],
        number(found.get("call_us")),
        number(found.get("device_us")),
        ratio(found.get("call")),
        ratio(found.get("device")),
        bound,
    ]
    return f"| {' | '.join(cells)} |"


print("| problem | verdict | call µs | device µs | itself, call | itself, device | of bound |")
print("|---|---|---|---|---|---|---|")
for found in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
    print(row(found))
