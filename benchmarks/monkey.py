"""`python -m benchmarks monkey`: random keys, clicks, bytes and sizes in a real terminal, until the app ends."""

import ast
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

from arena.cli.output import print_line, say
from arena.paths import ROOT, module_command, module_environment, paths_in
from arena.settings import ModelSettings, Settings, save_settings
from benchmarks.app.inspected import INSPECTED_TO, UNASKED
from benchmarks.app.terminal import Terminal
from benchmarks.app.token_server import token_server
from sandbox.protocol.verdict import ExitCode

_LEAVE = ["escape", "pause"] * 10 + ["f10", "pause"] + ["escape", "pause"] * 4 + ["f10", "rest", "escape", "rest"]
_SHOWN = ["rest", "enter", "rest", "enter", "await kernel.py", "rest", "enter", "pause"]  # the last enter: a draft
_KERNEL = ["type /", "pause", "ctrl+u", "type 8", *_SHOWN]
OPENINGS: dict[str, tuple[list[str], str]] = {
    "picker": ([], "Parallelism"),
    "kernel": ([*_KERNEL[:3], "type 1", *_SHOWN], "kernel.py"),
    "duel": ([*_KERNEL, "f8", "await enter starts", "enter", "await submit"], "submit"),
    "model": ([*_KERNEL, "f7", "await enter starts", "enter", "await stop"], "stop"),
    "sweep": (["type c"], "monkey"),
    "settings": (["f9"], "Colours of the app"),
    "history": ([*_KERNEL, "f6"], "History"),
    "machine": (["f11"], "This machine"),
}
"""For each screen: the keys that open it from the list of problems, and a text that it shows."""
SESSION_S = 180.0
"""The app is started again after this time, so that a failing sequence can be made short."""
LISTED = 40
"""Steps that are printed."""
OFTEN_ON = {"kernel": ["f11", "f1", "ctrl+f", "ctrl+p", "escape", "f11", "paste 5", "size 60x18", "size 160x45"]}
"""Steps that are every second one: they open and close what lies above a screen while it measures."""
HABIT = 0.15
"""Share of the turns at which a habit comes instead of a single step."""
REOPEN = 40
"""Turns after which the keys lead back to the screen."""
START_S, FROZEN_S, AWAITED_S = 90.0, 60.0, 10.0
"""Maximum seconds until the app draws after its start, until it draws a new size, and for a text that a step awaits."""
_CTRL = "abcdefghjklnoprstuvwxyz"  # without i (tab), m (enter) and q, which quits
_KEYS = {
    "enter": "\r", "tab": "\t", "shift+tab": "\x1b[Z", "escape": "\x1b", "backspace": "\x7f", "delete": "\x1b[3~",
    "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D", "home": "\x1b[H", "end": "\x1b[F",
    "pageup": "\x1b[5~", "pagedown": "\x1b[6~", "space": " ", "ctrl+end": "\x1b[1;5F", "ctrl+home": "\x1b[1;5H",
    "shift+down": "\x1b[1;2B", "shift+end": "\x1b[1;2F", "ctrl+right": "\x1b[1;5C", "ctrl+space": "\x00",
    "ctrl+_": "\x1f",
    **{f"ctrl+{letter}": chr(ord(letter) - 96) for letter in _CTRL},
    **{f"f{n}": f"\x1bO{letter}" for n, letter in enumerate("PQRS", 1)},
    **{f"f{n}": f"\x1b[{code}~" for n, code in zip(range(5, 13), (15, 17, 18, 19, 20, 21, 23, 24), strict=True)},
    **{f"shift+f{n}": f"\x1b[1;2{letter}" for n, letter in ((1, "P"), (2, "Q"), (4, "S"))},
    **{f"shift+f{n}": f"\x1b[{code};2~" for n, code in zip(range(5, 10), (15, 17, 18, 19, 20), strict=True)},
}  # fmt: skip
_OFTEN = ["ctrl+z", "ctrl+y", "enter", "backspace", "ctrl+end"]
"""Keys that change a text and its length."""
HABITS = (
    "ctrl+end | paste 40 | ctrl+z | ctrl+y | hold ctrl+z",
    "ctrl+end | burst 40 | rest | hold ctrl+z | hold ctrl+z | hold ctrl+y",
    "ctrl+home | shift+down | hold shift+down | paste 3 | ctrl+z | ctrl+z | ctrl+y",
    "ctrl+end | hold enter | hold enter | type x = | hold backspace | hold ctrl+z | hold ctrl+z",
    "ctrl+a | delete | ctrl+z | ctrl+y | ctrl+s | ctrl+z",
    "ctrl+s | rest | ctrl+z | ctrl+s | f6 | rest | down | enter | rest | ctrl+z | ctrl+y | ctrl+z",
    "paste 400 | size 60x14 | hold ctrl+z | size 120x40 | hold ctrl+y | size 34x10 | hold ctrl+z",
    "ctrl+p | rest | type s | hold down | hold enter",
    "ctrl+p | type se | enter | escape | ctrl+p | escape",
    "f6 | f6 | escape | f7 | escape | f8 | escape | f9 | escape | f4 | escape",
    "f9 | hold tab | type 0 | enter | hold backspace | enter | escape",
    "ctrl+end | flood enter | flood ctrl+z | flood ctrl+y | flood pageup | flood backspace",
    "flood tab | stop STOP | flood enter | flood escape | stop TSTP | flood down",
    "drag 5;5;60;20 | ctrl+c | delete | ctrl+v | ctrl+z | wheel 65;40;12 | drag 60;9;2;3 | type x",
    "size 160x45 | size 40x12 | size 100x30 | size 34x10 | size 160x45",
    "slash | type all | enter | hold down | enter | rest | f10",
)
"""What users do in one go. The steps come in this order; now and then another step comes between, or one is left out."""
RAW = r"""\xff\xfe\x80 \xc3 \xe5\x80 \xf0\x9f\x99 \xed\xa0\x80 \x00\x00 \x1b \x1b[ \x1b[<0; \x1b[201~ \x1b[O \x1b[I
\x1b[O\x1b[I\x1b[O\x1b[I \x1b[97u \x1b[97;5u \x1b[122;5:3u \x1b[57441;2:1u \x1b[99999999u \x1b[13;5u \x1b[27;1:3u
\x1b[115;5:2u \x1b[1;1R \x1b[?1u \x1b[?2026;2$y \x1b[?1;2c \x1b]11;rgb:ffff/ffff/ffff\x07
\x1b]52;c;!!\x07 \x1bP>|x\x1b\\ \x1b[<64;999;999M \x1b[<0;0;0M \x1b[<35;-1;5M"""
"""Bytes that a terminal may send: no UTF-8, cut sequences, focus, keys of kitty's protocol, answers to queries."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz  ()[]{}:.,='\"#/?012345é值🙂"
_LINE = "    if x is not None:  # 值\n\treturn x\n"


def step(rng: random.Random) -> str:
    """One thing that a user may do, as it is printed."""
    kind = rng.random()
    if kind < 0.12:
        return f"size {rng.randint(34, 160)}x{rng.randint(10, 45)}"
    if kind < 0.32:
        return "type " + "".join(rng.choices(_LETTERS, k=rng.randint(1, 8)))
    if kind < 0.37:
        return f"{rng.choice(['paste', 'burst'])} {rng.choice([1, 3, 40, 400])}"
    at = f"{rng.randint(1, 160)};{rng.randint(1, 45)}"
    if kind < 0.43:
        return f"click {rng.choice([0, 0, 0, 0, 1, 2, 4, 16])};{at}"
    if kind < 0.46:
        return f"{rng.choice(['wheel 64', 'wheel 65', 'wheel 66', 'wheel 80', 'drag 5;5'])};{at}"
    if kind < 0.49:
        return "raw " + rng.choice(RAW.split())
    if kind < 0.50:
        return f"stop {rng.choice(['STOP', 'TSTP'])}"
    if kind < 0.56:
        return f"{rng.choice(['hold', 'hold', 'flood'])} {rng.choice([*_KEYS, *_OFTEN * 8])}"
    return "rest" if kind < 0.60 else rng.choice([*_KEYS, *_OFTEN * 4])


def habit(rng: random.Random) -> list[str]:
    """The steps of one habit, slightly disturbed."""
    done: list[str] = []
    for each in rng.choice(HABITS).split(" | "):
        chance = rng.random()
        if chance > 0.05:
            done.append("type /" if each == "slash" else each)
        if chance > 0.9:
            done.append(step(rng))
    return done


def do(terminal: Terminal, what: str) -> None:
    """Does one step in the terminal."""
    word, _, rest = what.partition(" ")
    if word != "await":
        terminal.drawn = b""
    match word:
        case "await":
            terminal.read_until(rest.encode(), AWAITED_S)
        case "size":
            terminal.resize(*map(int, rest.split("x")))
        case "type":
            terminal.send(rest)
        case "paste":
            terminal.send(f"\x1b[200~{_LINE * int(rest)}\x1b[201~")
        case "burst":
            terminal.send((_LINE * int(rest)).replace("\n", "\r"))
        case "raw":
            terminal.send(ast.literal_eval(f"b'{rest}'").decode(errors="surrogateescape"))
        case "stop":
            for each in (signal.Signals[f"SIG{rest}"], signal.SIGCONT):
                terminal.process.send_signal(each)
                terminal.quiet(0.3)
        case "click":
            terminal.send(f"\x1b[<{rest}M\x1b[<{rest}m")
        case "drag":
            x, y, to = rest.split(";", 2)
            terminal.send(f"\x1b[<0;{x};{y}M\x1b[<32;{to}M\x1b[<0;{to}m")
        case "wheel":
            terminal.send(f"\x1b[<{rest}M" * 8)
        case "hold" | "flood":
            terminal.send(_KEYS[rest] * (20 if word == "hold" else 400))
        case "rest" | "pause":
            terminal.quiet(1.0 if word == "rest" else 0.25)
        case _:
            terminal.send(_KEYS[what])
    terminal.quiet(0.02)


class App:
    """The app in a terminal and folders of its own."""

    def __init__(self, screen: str, prepared: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pkb-monkey-", ignore_cleanup_errors=True)
        home = Path(self._folder.name) / "home"
        shutil.copytree(prepared, home)
        self.report = paths_in(home).traceback
        self.openings: list[bool] = []
        """Whether the keys led to the screen."""
        self._screen = screen
        self._waits = home / "waits.txt"
        variables = {**module_environment(), "PKB_ARENA_HOME": str(home), "EDITOR": "true", "PYTHONFAULTHANDLER": "1"}
        variables[INSPECTED_TO] = str(self._waits)
        self.terminal = Terminal([*module_command("benchmarks.app.inspected")], variables)
        since = time.monotonic()
        while len(self.terminal.drawn) < 4_000 and time.monotonic() - since < START_S:
            self.terminal.read(0.5)
        self.terminal.quiet(2.0)

    def open(self, steps: list[str]) -> str:
        """Leads back to the screen, and notes these steps. Returns how the app failed."""
        keys, shown = OPENINGS[self._screen]
        fault = self.frozen()
        steps += (turn := [*_LEAVE, "size 100x30", *keys])
        for each in turn:
            if not self.left:
                do(self.terminal, each)
        fault = fault or self.frozen()
        self.openings.append(self.terminal.read_until(shown.encode(), AWAITED_S))
        return fault

    def fault(self) -> str:
        """How the app failed; empty if it goes on or was left."""
        code = self.terminal.process.poll()
        if self.report.exists():
            report = self.report.read_text(encoding="utf-8")
            last = report.strip().splitlines()[-1]
            return f"{last} at {_places(report, last_first=True)}; whole: {self._kept(report)}"
        if code == UNASKED:
            return "ended, which nothing asked for"
        return f"exit code {code}" if code not in (None, 0, ExitCode.INTERRUPTED) else ""

    @property
    def left(self) -> bool:
        """Whether the app was quit, as the menu can."""
        return self.terminal.process.poll() is not None

    def is_frozen(self) -> bool:
        """Whether the app does not draw the last line of a new size, higher than all of the steps.

        Time in which it waits for a core does not count.
        """
        self.terminal.drawn = b""
        self.terminal.resize(80, 46)
        spent, cpu_s = 0.0, self.terminal.cpu_s()
        while not self.terminal.read_until(b"\x1b[46;1H", 0.5) and not self.left:
            state, before, cpu_s = self.terminal.state(), cpu_s, self.terminal.cpu_s()
            spent += cpu_s - before if state == "R" else 0.5
            if spent > FROZEN_S:
                return True
            if state == "T":  # a busy app stops itself late after SIGTSTP
                self.terminal.process.send_signal(signal.SIGCONT)
        self.terminal.resize(100, 30)
        self.terminal.quiet(1.0)
        return False

    def frozen(self) -> str:
        """Where the main thread stands if the app is frozen, else empty.

        The stacks of all threads, and what screens, queues and tasks wait for, go to a file.
        """
        if self.left or not self.is_frozen():
            return ""
        process = self.terminal.process
        state = self.terminal.state()
        process.send_signal(signal.SIGUSR1)
        self.terminal.quiet(3.0)
        waits = self._waits.read_text(encoding="utf-8") if self._waits.exists() else "it did not answer SIGUSR1\n"
        process.send_signal(signal.SIGABRT)
        self.terminal.quiet(3.0)
        stacks = self.terminal.drawn.decode(errors="replace").replace("\r", "").partition("Fatal Python error")[2]
        main = _places(stacks.partition("Current thread")[2])
        return f"frozen in state {state} at {main}; all threads: {self._kept(waits + stacks)}"

    def _kept(self, text: str) -> Path:
        """The file of a text that outlasts the app's folders."""
        file = Path(tempfile.gettempdir()) / f"pkb-monkey-{self.terminal.process.pid}.txt"
        file.write_text(text, encoding="utf-8")
        return file

    def close(self) -> str:
        """Ends the app. Returns how it failed meanwhile."""
        self.terminal.close()
        fault = self.fault() if self.report.exists() else ""
        self._folder.cleanup()
        return fault


def _places(trace: str, last_first: bool = False) -> str:
    """The innermost calls of a traceback: "screen.py:12 < app.py:7"."""
    found = re.findall(r'File "([^"]+)", line (\d+)', trace)
    return " < ".join(f"{Path(file).name}:{line}" for file, line in found[:: -1 if last_first else 1][:10])


def play(screen: str, prepared: Path, steps: list[str]) -> str:
    """Starts the app and does the steps. Returns how it failed; empty if it did not."""
    app = App(screen, prepared)
    for each in steps:
        if fault := app.fault():
            app.close()
            return fault
        if not app.left:
            do(app.terminal, each)
    if not app.left:
        app.terminal.quiet(2.0)
    fault = app.fault() or app.frozen()
    return app.close() or fault


def explore(screen: str, prepared: Path, seed: str, seconds: float) -> tuple[list[str], str, list[bool]]:
    """Does random steps for some time. Returns them, how the app failed, and whether each opening led to the screen."""
    steps: list[str] = []
    rng, app, deadline = random.Random(seed), App(screen, prepared), time.monotonic() + seconds
    fault, turn = app.fault(), 0
    while not fault and not app.left and time.monotonic() < deadline:
        if turn % REOPEN == 0:
            fault = app.open(steps)
        often = OFTEN_ON.get(screen, []) if rng.random() < 0.5 else []
        single = rng.choice(often) if often else step(rng)
        turns = habit(rng) if turn % REOPEN == 0 or rng.random() < HABIT else [single]
        turn += 1
        for each in turns:
            if not app.left:
                steps.append(each)
                do(app.terminal, each)
        fault = fault or app.fault()
    return steps, app.close() or fault, app.openings


def shorten(screen: str, prepared: Path, steps: list[str], seconds: float) -> list[str]:
    """Leaves out steps while the app still fails: all before the last ones, then large parts to single ones."""
    deadline = time.monotonic() + seconds
    for last in (20, 60, 180):
        if last < len(steps) and time.monotonic() < deadline and play(screen, prepared, steps[-last:]):
            steps = steps[-last:]
            break
    part = max(1, len(steps) // 2)
    while part:
        at = max(0, len(steps) - part)
        while at >= 0 and time.monotonic() < deadline:
            fewer = steps[:at] + steps[at + part :]
            if play(screen, prepared, fewer):
                steps = fewer
            at = at - part if at else -1
        part = part // 2 if time.monotonic() < deadline else 0
    return steps


@contextlib.contextmanager
def prepared_home(folder: Path, screen: str) -> Iterator[None]:
    """Writes settings, and a sweep for its screen. For the others a model writes without end while the block runs."""
    seconds = 2.5 if screen in OFTEN_ON else 0.1
    with token_server(50) if screen in ("duel", "model") else contextlib.nullcontext() as address:
        endless = (
            {"endless": ModelSettings(provider="openai_chat", model="endless", base_url=address)} if address else {}
        )
        save_settings(Settings(device="cpu", world=2, seconds=seconds, models=endless), paths_in(folder))
        if screen == "sweep":
            players, sizes = ["--players", "baseline,house"], ["--problems", "1,2", "--preset", "tiny", "--one-size"]
            command = module_command("screens.main", "sweep", *players, *sizes, "--rounds", "0", "--name", "monkey")
            variables = {**os.environ, **module_environment(), "PKB_ARENA_HOME": str(folder)}
            subprocess.run(command, env=variables, cwd=ROOT, check=False, capture_output=True)
        yield


@click.command("monkey")
@click.option("--screen", type=click.Choice([*OPENINGS]), help="Where it plays. [default: each screen]")
@click.option("--minutes", type=click.FloatRange(0.1, 600), default=1.0, show_default=True, help="On each screen.")
@click.option("--seed", default=lambda: str(random.randrange(10_000)), help="Makes the steps repeat. [default: any]")
@click.option("--shorten", "shorten_s", type=click.FloatRange(0, 3600), default=240.0, show_default=True, metavar="S",
              help="Seconds to shorten a failing sequence.")  # fmt: skip
def command(screen: str | None, minutes: float, seed: str, shorten_s: float) -> None:
    """Press random keys in the app: does it end? Prints seeds, and the keys that ended it."""
    failed = False
    for name in [screen] if screen else OPENINGS:
        failed = _play_on(name, minutes * 60, seed, shorten_s) or failed
    sys.exit(ExitCode.KERNEL_FAILED if failed else ExitCode.PASS)


def _play_on(screen: str, seconds: float, seed: str, shorten_s: float) -> bool:
    """Plays on one screen until a failure or the end of the time. Returns whether the app failed."""
    with tempfile.TemporaryDirectory(prefix="pkb-monkey-") as folder:
        prepared = Path(folder) / "prepared"
        openings: list[bool] = []
        with prepared_home(prepared, screen):
            began, done, number = time.monotonic(), 0, 0
            while (left := seconds - (time.monotonic() - began)) > 0:
                say(f"{screen}: seed {seed}/{number}")
                steps, fault, opened = explore(screen, prepared, f"{screen}/{seed}/{number}", min(SESSION_S, left))
                done, number, openings = done + len(steps), number + 1, openings + opened
                if fault:
                    break
            minutes = (time.monotonic() - began) / 60
            reached = f"opened {sum(openings)} of {len(openings)}"
            print_line(
                f"{screen:<9} seed {seed:<5} {minutes:5.1f} min  {done:6} steps  {reached}  {fault or 'went on'}"
            )
            if fault and shorten_s:
                short = shorten(screen, prepared, steps, shorten_s)
                print_line(f"  {len(steps)} steps, shortened to {len(short)}, the last: {' | '.join(short[-LISTED:])}")
    return bool(fault)
