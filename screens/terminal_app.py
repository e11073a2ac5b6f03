"""The app and its terminal: orders keys, quits on a signal or a lost terminal, pauses while another program uses it."""

import asyncio
import codecs
import math
import os
import select
import shlex
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import RenderableType
from rich.segment import Segment
from textual import await_remove, events
from textual._callback import invoke
from textual._context import active_message_pump
from textual.app import App, ScreenStackError, SuspendNotSupported
from textual.await_complete import AwaitComplete
from textual.color import Color
from textual.css.query import NoMatches
from textual.dom import DOMNode, NoScreen
from textual.drivers import linux_driver
from textual.drivers._writer_thread import WriterThread
from textual.errors import NoWidget
from textual.filter import LineFilter
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import OptionList
from textual.worker import WorkerFailed

from arena.settings import Settings
from arena.words.untrusted_text import MASK, masked
from sandbox.protocol.verdict import ExitCode
from screens.actions import key_of
from screens.app_protocol import BURST_S, if_there, text_of

LEAVE_S = 10.0
"""Maximum seconds from a signal to the end of the process. The referee ends by itself when its pipe closes."""
PATIENCE_S = 0.3
"""Seconds that a key waits for the one before it, which may take longer or whose widget may be gone."""
REPAINT_S = 0.3
"""Maximum seconds until a closed dialog is gone from the display."""
HELD_S = 0.15
"""Maximum seconds between two characters of a key that is held."""
BURST_KEYS = 12
"""So many keys, each within BURST_S of the one before it, are a paste of a terminal without bracketed paste."""
BURST_GAP_S = 0.15
"""Maximum seconds between two keys of a long paste, of which a terminal's 4 KB arrive together."""
PREPARING_S = 3.0
"""Maximum seconds that keys wait for a screen in preparation."""


class CharactersOnly(LineFilter):
    """Masks the characters of every line that would control the terminal, because all screens show foreign texts."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Returns the masked segments in as many cells as before: a control character has none."""
        line = "".join(segment.text for segment in segments)
        if masked(line) == line:
            return segments
        return [
            each if each.control else Segment(masked(each.text, lambda found: MASK * cell_len(found)), each.style)
            for each in segments
        ]


def has_shell() -> bool:
    """Whether a shell could continue this process after it was stopped."""
    return os.getpgid(0) != os.getsid(0)


def _read_keys(driver: linux_driver.LinuxDriver) -> None:
    """Reads on after what Textual cannot parse, such as a terminal's size of 0 pixels. Textual would end the app."""
    with suppress(OSError):  # the terminal is lost
        while not driver.exit_event.is_set():
            with suppress(ArithmeticError, LookupError, ValueError, TypeError, AttributeError):
                driver.run_input_thread()


def _write_pictures(thread: WriterThread) -> None:
    """Writes what is drawn, and drops it once the terminal is lost. Textual's thread would end, and its queue fill."""
    with suppress(OSError), open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False) as terminal:
        while (text := thread._queue.get()) is not None:
            with suppress(OSError):
                terminal.write(text)
                if thread._queue.empty():
                    terminal.flush()


def _until_removed(*tasks: asyncio.Task[None]) -> asyncio.Future[list[None]]:
    """Waits for widgets' tasks. Textual would end these, and with them the app, once one who waits is cancelled."""
    return asyncio.gather(*map(asyncio.shield, tasks))


@contextmanager
def _uncancelled() -> Iterator[None]:
    """Goes on after a cancelled wait in a message or a call that waits. Only the end of the app's own task is passed on.

    Textual would end the app without a word, and drop the other calls: without its end, a delay would last for ever.
    """
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise


OptionList._on_click = if_there(OptionList._on_click)  # type: ignore[method-assign]


def _kind(screen: Screen[Any]) -> tuple[type, str]:
    return type(screen), getattr(screen, "_title", "")


def _screen_of(node: DOMNode) -> Screen[Any] | None:
    return next((each for each in node.ancestors_with_self if isinstance(each, Screen)), None)


class TerminalApp(App[None]):
    """The base of the app."""

    _characters_only = CharactersOnly()

    def __init__(self) -> None:
        super().__init__()
        await_remove.gather = _until_removed  # type: ignore[assignment, attr-defined]
        self._away = False
        """Whether another program has the terminal."""
        self._keys: list[events.Key] = []
        """The keys that wait."""
        self._in_turn: events.Key | None = None
        """The key that widgets are handling."""
        self._typed_into: Widget | None = None
        """The widget that may not have handled all characters that were typed into it."""
        self._in_preparation: set[object] = set()
        """A mark for each screen in preparation that keys wait for."""
        self._vanished_at = 0.0
        """When the last closed dialog was gone from the display; infinite while it is still there."""
        self._last_key, self._last_at = "", 0.0
        """The last key, and when it came."""
        self._held = ""
        """The key that closed a dialog, while it is held."""
        self._newest: tuple[float, int] = (0.0, 0)
        """When the newest key came, and its number in a burst."""

    def run_to_end(self) -> int:
        """Runs until the app is left, then ends what runs beside the screens. Returns the exit code."""

        async def live() -> None:
            self._end_on_signal()
            try:
                await self.run_async()
            finally:
                await self.end()  # after the terminal is restored, so that the user sees no frozen screen

        linux_driver.getincrementaldecoder = lambda name: partial(codecs.getincrementaldecoder(name), errors="replace")  # type: ignore[attr-defined]
        linux_driver.LinuxDriver._run_input_thread = _read_keys  # type: ignore[method-assign, assignment]
        WriterThread.run = _write_pictures  # type: ignore[method-assign, assignment]
        warnings.filterwarnings("ignore", "coroutine .* was never awaited")  # work cancelled before it began
        asyncio.run(live())
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to do: ctrl+c needs no traceback
        return self.return_code or 0

    async def end(self) -> None:
        """Ends what runs beside the screens."""

    def on_mount(self) -> None:
        signal.signal(signal.SIGTSTP, self._stopped)
        signal.signal(signal.SIGCONT, self._continued)

    def _end_on_signal(self) -> None:
        """Quits in order after a signal or the loss of the terminal, which a thread awaits: the loop may be blocked."""
        signals, signalled = os.pipe()
        poll = select.poll()
        poll.register(signals, select.POLLIN)
        numbers = [signal.SIGTERM, signal.SIGHUP]
        if os.isatty(0):
            poll.register(0, 0)  # a hang-up only. A shell or make may get the signal and not pass it on
            numbers.append(signal.SIGINT)  # asyncio would cancel the app, which could then take the terminal again
        for number in numbers:
            signal.signal(number, lambda number, _: os.write(signalled, bytes([number])))
        loop = asyncio.get_running_loop()

        def await_end() -> None:
            came = [descriptor for descriptor, _ in poll.poll()]
            number = os.read(signals, 1)[0] if signals in came else signal.SIGHUP
            if 0 in came and isinstance(self._driver, linux_driver.LinuxDriver):
                self._driver.exit_event.set()  # its reader would read the end of the file for ever
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(partial(self.exit, return_code=128 + number))
            time.sleep(LEAVE_S)
            os._exit(128 + number)

        threading.Thread(target=await_end, daemon=True).start()

    def _stopped(self, *_: object) -> None:
        """Stops after ctrl+z. What the signal interrupts may hold the lock that Textual needs to leave the terminal."""
        leave = getattr(self._driver, "_sigtstp_application", None)
        if leave is None or self._away or self._exit or not self.is_running:
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            asyncio.get_running_loop().call_soon_threadsafe(leave)

    def action_suspend_process(self) -> None:
        """Stops all processes of the shell's job: `make`, if it has started the app, would go on waiting for it."""
        if isinstance(self._driver, linux_driver.LinuxDriver):
            self._driver.suspend_application_mode()
            self._driver._must_signal_resume = True
            os.killpg(0, signal.SIGSTOP)

    def _continued(self, *_: object) -> None:
        if self.is_running and not self._exit:  # a reader of keys that starts now would never end
            asyncio.get_running_loop().call_soon_threadsafe(self._resume)

    def _resume(self) -> None:
        """Takes the terminal again after ctrl+z. Only draws if another program had stopped the app: readers of keys go on."""
        if getattr(self._driver, "_must_signal_resume", False) and self.is_running and not self._exit:
            self._driver.resume_application_mode()  # type: ignore[union-attr]
        self.refresh()

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Writes nothing to the terminal while another program has it, and leaves ctrl+c and ctrl+z to that program.

        Textual alone would go on drawing into a queue that is no longer emptied, and block forever when it is full.
        """
        self._away = True
        others = (signal.SIGINT, signal.SIGQUIT, *([] if has_shell() else [signal.SIGTSTP]))
        before = {number: signal.signal(number, lambda *_: None) for number in others}
        try:
            with self.batch_update(), super().suspend():
                yield
        finally:
            self._away = False
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end_batch(self) -> None:
        """Wakes each screen for what it has put off. Textual wakes only the one in front."""
        super()._end_batch()
        for screen in self.screen_stack:
            screen.check_idle()

    def set_timer(self, delay: float, *arguments: Any, **named: Any) -> Timer:
        """Starts a timer that always fires: Textual drops one that a busy machine starts `delay` seconds late.

        Without its timer of 8 ms, Textual would draw no other size any more.
        """
        timer = super().set_timer(delay, *arguments, **named)
        timer._skip = False
        return timer

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), self._characters_only]

    def _has_widget_at(self, event: events.MouseEvent) -> bool:
        """Whether the widget that was drawn there still exists. Textual would fail at a press on one that is removed."""
        try:
            return not self._is_gone(self.get_widget_at(*event.screen_offset)[0])
        except (NoWidget, ScreenStackError):
            return False

    # --- keys in turn --------------------------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        """Holds a key until the one before it is handled: that may move the focus, or open or close a dialog."""
        if isinstance(event, events.Key) and not self.screen_stack:
            return  # the app is closing
        if not isinstance(event, events.Key) or event.is_forwarded:
            if not isinstance(event, events.MouseEvent) or event.is_forwarded or self._has_widget_at(event):
                await super().on_event(event)
            return
        self._keys.append(event)
        came, number = self._newest
        fast = event.time - came < (BURST_S if number < BURST_KEYS else BURST_GAP_S)
        self._newest = event.time, number + 1 if fast else 1
        if self._in_turn is None:
            await self._handle_keys()
        elif len(self._keys) == 1:
            self.set_timer(PATIENCE_S, partial(self._end_turn, self._in_turn))

    @contextmanager
    def keys_wait(self) -> Iterator[None]:
        """Holds back keys that are meant for a screen in preparation, which the caller opens at once."""
        mark = object()
        self._in_preparation.add(mark)
        self.set_timer(PREPARING_S, partial(self._prepared, mark))
        try:
            yield
        finally:  # its widgets are mounted when it is drawn; a focus that they ask for then moves before a key does
            self.call_later(lambda: self.screen.call_after_refresh(self.call_later, self._prepared, mark))

    def _prepared(self, mark: object) -> None:
        self._in_preparation.discard(mark)
        self.call_later(self._handle_keys)

    async def _handle_keys(self) -> None:
        """Sends the first key to the focused widget. Its turn ends when all widgets on its way up have handled it."""
        while self._keys and self._in_turn is None and not self._in_preparation:
            key, screen, target = self._keys[0], self.screen, self.focused or self.screen
            if not screen.is_mounted and time.monotonic() < key.time + PREPARING_S:
                with self.keys_wait():  # it has no widgets yet
                    return
            if await self._pastes(target):
                return
            types = target.check_consume_key(key.key, key.character)
            if self._typed_into is not None and not types:
                self._await_text(self._typed_into, key)
                return
            self._keys.pop(0)
            late = self._is_late(key)
            self._last_key, self._last_at = key.key, key.time
            if not late:
                self._in_turn = key
                if self._keys:
                    self.set_timer(PATIENCE_S, partial(self._end_turn, key))
                await super().on_event(key)
                if not types:
                    self._pass_up(key, screen, [*target.ancestors_with_self])
                    return
                self._typed_into = target
            self._in_turn = None  # it is dropped, or typed into a text: the focus stays where it is

    async def _pastes(self, target: Widget) -> bool:
        """Pastes the keys of a burst into an editor, which would handle each by itself. Returns whether it did."""
        if self._newest[1] < BURST_KEYS or not getattr(target, "types", False):
            return False  # before a look at the keys: thousands may wait
        keys = [*takewhile(text_of, self._keys)]
        if not keys:
            return False
        del self._keys[: len(keys)]
        paste = events.Paste("".join(map(text_of, keys)))
        paste.time = keys[0].time
        await super().on_event(paste)
        self._typed_into, self._in_turn = target, keys[0]
        self.set_timer(BURST_S, partial(self._end_turn, keys[0]))  # the next ones are collected until then
        return True

    def _await_text(self, widget: Widget, key: events.Key) -> None:
        """Holds a key until a widget has handled the characters before it: the key may take the text as it is."""
        self._typed_into, self._in_turn = None, key
        self.set_timer(PATIENCE_S, partial(self._end_turn, key))
        if not widget.call_later(self._end_turn, key):
            self._end_turn(key)

    def _pass_up(self, key: events.Key, screen: Screen[object], way: list[DOMNode]) -> None:
        """Follows the key upwards: a callback in a widget's queue runs after the key that was passed on to it."""
        while way:
            if way.pop(0).call_later(self._pass_up, key, screen, way):
                return
        if self.screen is screen:
            self._end_turn(key)
        else:  # another screen was opened: its widgets are mounted when it is drawn
            self.screen.call_after_refresh(self._end_turn, key)

    def _end_turn(self, key: events.Key) -> None:
        if self._in_turn is key:
            self._in_turn = None
            self.call_later(self._handle_keys)

    def _is_late(self, event: events.Key) -> bool:
        """Whether the key was pressed for a dialog that has closed, or closed the dialog and has been held since."""
        if event.key != self._held or event.time - self._last_at > HELD_S:
            self._held = ""
        return event.time < self._vanished_at or bool(self._held)

    async def _dispatch_action(self, namespace: DOMNode, action_name: str, params: Any) -> bool:
        """Drops an action of a screen that has been closed, such as one chosen in a menu by a key that is held.

        Also drops a page up or down in a list without room: Textual knows no place of its options. Goes on if what is
        imported only now does not fit, because the app's files were changed.
        """
        screen = _screen_of(namespace)
        closed = screen is not None and screen not in self.screen_stack
        room = namespace.scrollable_content_region if isinstance(namespace, Widget) else True
        if closed or (action_name in ("page_up", "page_down") and not room):
            return False
        try:
            return await super()._dispatch_action(namespace, action_name, params)
        except (ImportError, SyntaxError) as error:
            self.notify(f"pkb-arena has changed: quit it and open it again ({error})", severity="error", markup=False)
            return True

    def push_screen(self, screen: Any, *arguments: Any, **named: Any) -> Any:
        """Opens a screen in place of one of its kind in front, but no dialog while one of its kind and title is open.

        The keys that open a dialog work in dialogs, too, and a held key may ask for it again before it is in front.
        """
        stack = self.screen_stack
        if screen.is_modal and _kind(screen) in map(_kind, stack):
            unanswered = asyncio.get_running_loop().create_future()
            unanswered.set_result(None)
            return unanswered
        if not screen.is_modal and type(screen) in map(type, stack[-1:]):
            self.pop_screen()
        return super().push_screen(screen, *arguments, **named)

    def pop_screen(self) -> AwaitComplete:
        """Closes a screen, unless it is the last. Keys are meant for a closed dialog, and dropped, while it is displayed."""
        if len(self.screen_stack) < 2:
            return AwaitComplete()
        was_modal = self.screen.is_modal
        popped = super().pop_screen()
        if was_modal and not self.screen.is_modal:
            self._vanished_at, self._held = math.inf, self._last_key
            self.screen.call_after_refresh(self._vanished)
            self.set_timer(REPAINT_S, self._vanished)
        return popped

    def _vanished(self) -> None:
        self._vanished_at = min(self._vanished_at, time.monotonic())

    # --- faults ----------------------------------------------------------------------------------------------

    async def _process_messages_loop(self) -> None:
        while True:
            with _uncancelled():
                return await super()._process_messages_loop()

    async def _flush_next_callbacks(self) -> None:
        waiting, self._next_callbacks = self._next_callbacks, []
        for call in waiting:
            try:
                with _uncancelled(), self.prevent(*call._prevent):
                    await invoke(call.callback)
            except Exception as error:
                self._handle_exception(error)

    def _handle_exception(self, error: Exception) -> None:
        """Ends the app after a fault. Drops an error of a screen that was closed while it handled a message."""
        if isinstance(error, WorkerFailed) and isinstance(error.error, Exception):
            error = error.error
        if isinstance(error, NoMatches | NoScreen) and self._is_gone(active_message_pump.get(None)):
            self.log.error(repr(error))
            return
        super()._handle_exception(error)
        self._return_code = ExitCode.ENVIRONMENT  # Textual's 1 means, as a command's exit code, that a kernel failed

    def _fatal_error(self) -> None:
        if self._exception is not None and not self._exit_renderables:  # the first one; others follow from it
            self._exit_renderables.append(self.fault_box(self._exception))
        self._close_messages_no_wait()

    def fault_box(self, error: Exception) -> RenderableType:
        """What is printed when a fault has ended the app."""
        return f"{type(error).__name__}: {error}"

    def _is_gone(self, node: object) -> bool:
        """Whether a widget was removed, its screen closed, or the app left."""
        if self._exit or not self._running:
            return True
        if not isinstance(node, DOMNode) or node is self:
            return False
        return node._pruning or not node.is_attached or _screen_of(node) not in self.screen_stack

    def notify(self, message: str, **how: Any) -> None:
        """Shows a message, unless it is still shown: a held key would cover the screen with it."""
        if all(message != each.message for each in self._notifications):
            super().notify(message, **how)

    def bell(self) -> None:
        if not self._away:
            super().bell()


_TAKES_LINE = {"vi", "vim", "nvim", "nano", "emacs", "emacsclient", "kak", "micro", "joe", "ne"}


def editor_command(settings: Settings, path: Path, line: int) -> list[str]:
    """Returns the command that opens `path`, at `line` (1-based) if the editor is known to accept a line.

    The setting comes first, then $VISUAL, then $EDITOR, then the first of nano, vim and vi that exists.
    """
    asked = settings.editor or os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    command = shlex.split(asked) or [next((name for name in ("nano", "vim", "vi") if shutil.which(name)), "vi")]
    place = [f"+{line}"] if Path(command[0]).name in _TAKES_LINE else []
    return [*command, *place, str(path)]


async def edit_outside(app: App[Any], settings: Settings, path: Path, line: int) -> str:
    """Hands the terminal to the editor until it ends. Returns what went wrong, if anything did."""
    try:
        command = editor_command(settings, path, line)
    except ValueError as error:
        return f"the editor setting cannot be read: {error}"
    if shutil.which(command[0]) is None:
        key = key_of("settings", settings.keymap)
        return f"there is no editor {command[0]!r} → set `editor` in the settings ({key}) or $EDITOR"
    try:
        with app.suspend():
            process = await asyncio.create_subprocess_exec(*command)  # shares the terminal, on purpose
            status = await process.wait()
    except SuspendNotSupported:
        return "this terminal cannot be handed to another program → edit the file elsewhere; saving it runs it"
    except OSError as error:
        return f"{command[0]} did not start: {error.strerror}"
    app.refresh(layout=True)
    return f"{command[0]} ended with status {status}" if status else ""
