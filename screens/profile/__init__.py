"""The profile of a kernel: a lane for each rank with a sentence, and the measured times above.

The profile is made in a process of its own (arena/profile/profile_process.py); leaving this screen ends it.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content

from arena.errors import ArenaError
from arena.paths import make_folder
from arena.profile.ncu import NcuProfiled
from arena.profile.profile_process import Profiled, ProfileRequest, profile
from arena.profile.profiling import keep_profile, ncu_file
from arena.profile.rules import first_failure
from arena.profile.timeline import Timeline, typical_call, write_trace
from arena.words.untrusted_text import printable
from problems.specification import Problem
from sandbox.protocol.result import BareResult
from screens.actions import Scope, bindings
from screens.app_protocol import AppProtocol
from screens.base import BaseScreen
from screens.profile import words
from screens.widgets.key_line import KeyLine, entitle
from screens.widgets.text_lines import PlainStatic, follow_width

REFRESH_S = 0.25


class ProfileScreen(BaseScreen):
    """Profiles one revision of a kernel when it opens, and shows the profile."""

    CSS_PATH: ClassVar[Any] = [Path(__file__).with_name("screen.tcss")]
    SCOPE: ClassVar[Scope] = "profile"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("profile")]

    def __init__(
        self,
        parent_app: AppProtocol,
        problem: Problem,
        request: ProfileRequest,
        revision: str,
        result: Callable[[], BareResult | None],
        *,
        unsaved: bool = False,
    ) -> None:
        """
        Args:
            parent_app: the app.
            problem: what the kernel solves.
            request: the kernel and its setting.
            revision: the first letters of the text's SHA-256.
            result: returns the judge's result for this revision in this setting; None until it is known.
            unsaved: the editor has text that is not in this revision.
        """
        super().__init__(parent_app)
        self.problem = problem
        self.request = request
        self.revision = revision
        self.found: Profiled | None = None
        self.trace: Path | None = None
        """Where the trace was written."""
        self._result_now = result
        self._result: BareResult | None = None
        self._timeline: Timeline | None = None
        self._waits = False
        self._since = time.monotonic()
        """When it began to wait, or to profile."""
        self._end: Content | None = None
        """The message shown if no profile could be made."""
        self._unsaved = unsaved
        self._ncu: Content | None = None
        """The findings of Nsight Compute, or why there are none; None before its first run."""
        self._ncu_since = 0.0
        """When Nsight Compute began; 0 while it does not run."""

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="profile-pane", classes="pane"):
            yield PlainStatic(id="profile-page")
        yield KeyLine()

    def on_mount(self) -> None:
        setting = self.request.setting
        title = f"profile · {self.problem.id} {self.problem.slug} · {printable(self.request.kernel_name)}"
        saved = " as saved, without what was typed since" if self._unsaved else ""
        of = f"revision {self.revision}{saved} · {setting.preset} · {setting.dtype} · W={setting.world}"
        entitle(self.query_one("#profile-pane"), title, of)
        follow_width(self.query_one("#profile-page"), self.draw)
        self.set_interval(REFRESH_S, self.draw)
        self.start(self._profile(), "profile")

    async def _profile(self) -> None:
        self._end = None
        try:
            found = await profile(self.request, self._tell)
            assert isinstance(found, Profiled), "the request names no file for ncu"
        except ArenaError as error:
            self._end = words.not_made("! NOT PROFILED\n\n", error)
        else:
            if (failed := first_failure(found.reports)) is not None:
                self._end = words.rank_failed(failed)
            else:
                self._timeline = await asyncio.to_thread(typical_call, found.reports)
                paths = self.services.paths
                if trouble := await asyncio.to_thread(keep_profile, paths, self.request, found):
                    self.complain(trouble)
                self.found = found
        self.draw()

    def _tell(self, waits: bool) -> None:
        self._waits, self._since = waits, time.monotonic()

    # --- drawing -------------------------------------------------------------------------------------------

    def draw(self) -> None:
        """Draws the page. Called four times a second, because the seconds advance and a verdict may come."""
        if not self.is_attached:
            return
        self.show_keys()
        page, pane = self.query_one("#profile-page", PlainStatic), self.query_one("#profile-pane")
        if page.size.width:
            page.update_if_new(self._page(page.size.width, pane.content_size.height))

    def _page(self, width: int, height: int) -> Content:
        self._result = self._result_now() or self._result
        if self.found is None:
            waited = time.monotonic() - self._since
            return self._end or words.at_work(self._waits, waited, self.key_words("machine"))
        judged = words.judged_words(self._result, self.key_words("run"))
        below = words.trace_words(self.trace, self.key_words("write_trace"))
        if self._ncu_since:
            below += words.ncu_at_work(self._waits, time.monotonic() - self._ncu_since)
        elif self._ncu is not None:
            below += self._ncu
        elif self.found.gpu_figures:
            below += words.ncu_offered(self.key_words("ncu"))
        return words.page(self.found, self._timeline, judged, below, width, height)

    # --- keys ----------------------------------------------------------------------------------------------

    @property
    def idle_actions(self) -> frozenset[str]:
        idle = set() if self.found is not None else {"write_trace"}
        if self.found is None or not self.found.gpu_figures or self._ncu_since:
            idle.add("ncu")
        return super().idle_actions | idle

    def action_write_trace(self) -> None:
        if self.found is None:
            self.say("there is no profile to write" if self._end else "the profile is still being made")
        else:
            self.start(self._write_trace(self.found), "trace")

    async def _write_trace(self, found: Profiled) -> None:
        name = f"{self.problem.slug}-{self.revision}-{time.strftime('%Y%m%d-%H%M%S')}.json"
        path = self.services.paths.profiles / name
        await asyncio.to_thread(make_folder, path.parent)
        await asyncio.to_thread(write_trace, path, found.reports)
        self.trace = path
        self.say(f"written: {path}")
        self.draw()

    def action_ncu(self) -> None:
        if self.found is None:
            self.say("the profile comes first")
        elif not self.found.gpu_figures:
            self.say("Nsight Compute profiles kernels of GPUs")
        elif not self._ncu_since:
            self.start(self._profile_with_ncu(), "ncu")

    async def _profile_with_ncu(self) -> None:
        self._ncu_since = time.monotonic()
        try:
            paths = self.services.paths
            file = await asyncio.to_thread(ncu_file, paths, self.problem.slug, self.request)
            request = msgspec.structs.replace(self.request, ncu_file=str(file))
            found = await profile(request, self._tell)
            assert isinstance(found, NcuProfiled), "the request names a file for ncu"
        except ArenaError as error:
            self._ncu = words.not_made("\n\n! NO REPORT OF NCU  ", error)
        else:
            self._ncu = words.ncu_found(found)
        finally:
            self._ncu_since = 0.0
        self.draw()

    def action_leave_profile(self) -> None:
        self.dismiss()
