"""Verdicts as text for the model that wrote the kernel. Output of the kernel or its compiler is fenced as data."""

import re
from collections.abc import Sequence
from pathlib import Path

from arena.models.conversation import Conversation, Message, fill_template, read_template
from arena.players.attempts import RETURNS, Attempt, best_of, score
from arena.records.report_text import ELSEWHERE, HARNESS, brief_speed, facts, told_parts
from arena.records.run_record import RunRecord
from arena.runs.judge import Judgement
from arena.words.untrusted_text import one_line, printable
from sandbox.protocol.kernel_files import MAIN, Kernel
from sandbox.protocol.verdict import ADVICE, Verdict

FOREIGN_CHARACTERS = 8000
"""Maximum length of quoted output of kernel processes. Longer output keeps its beginning and its end."""
_REPLY_CHARACTERS = 4000
"""Maximum length of an answer without a kernel, when it is sent back to the model."""
_LANGUAGES = {".py": "python", ".cu": "cuda", ".cuh": "cuda"} | dict.fromkeys(
    (".cpp", ".cc", ".cxx", ".c", ".h", ".hpp"), "cpp"
)
_AROUND = 3
"""Lines shown before and after the failed line."""


def fenced(text: str, language: str = "text") -> str:
    """Returns `text` in a fence that is longer than any fence in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def fenced_kernel(kernel: Kernel) -> str:
    """Formats a kernel as in a model's answer: one fence, or one fence with a name for each file."""
    if not kernel.files:
        return fenced(kernel.source, "python")
    texts = {MAIN: kernel.source} | {name: data.decode(errors="replace") for name, data in sorted(kernel.files.items())}
    return "\n\n".join(
        fenced(text, f"{_LANGUAGES.get(Path(name).suffix, 'text')} {name}") for name, text in texts.items()
    )


def foreign(text: str) -> str:
    """Makes text from a kernel's processes printable, truncates it and puts it in a fence."""
    text = printable(text).strip("\n")
    if len(text) > FOREIGN_CHARACTERS:
        half = FOREIGN_CHARACTERS // 2
        text = f"{text[:half]}\n[... {len(text) - FOREIGN_CHARACTERS} characters left out ...]\n{text[-half:]}"
    return fenced(text)


def next_turn(conversation: Conversation, attempts: Sequence[Attempt]) -> Conversation:
    """Returns the conversation for the next step: the task, the last answer, and the results of all attempts."""
    last = attempts[-1]
    best = best_of(attempts)
    if last.report is not None:
        answer = fenced_kernel(last.answer.kernel)
        told = verdict_words(last)
    else:
        answer = last.answer.text.strip()[:_REPLY_CHARACTERS] or "(nothing)"
        told = fill_template("no_kernel", reason=one_line(last.answer.reason))
    parts = [told]
    if len(attempts) > 1:
        parts.append("# Your attempts so far\n\n" + "\n".join(map(attempt_row, attempts)))
    if best is not None and best.step != last.step and score(best.report) > score(last.report):
        parts.append(f"# Your best kernel so far (attempt {best.step})\n\n" + fenced_kernel(best.answer.kernel))
    parts.append(fill_template("next_faster" if last.passed else "next_right"))
    return conversation.then(Message("assistant", answer), Message("user", "\n\n".join(parts)))


def attempt_row(attempt: Attempt) -> str:
    """Returns an attempt in one line of a list."""
    report = attempt.report
    if report is None:
        return f"- {attempt.step}: no kernel ({one_line(attempt.answer.reason)})"
    if attempt.passed:
        return f"- {attempt.step}: PASS, {brief_speed(report) or 'not timed'}"
    failure = report.failure
    why = f": {_quoted(failure.message, 160)}" if failure is not None else ""
    return f"- {attempt.step}: {report.verdict}{why}"


def verdict_words(attempt: Attempt) -> str:
    """Returns the verdict on a judged attempt as text."""
    assert attempt.judgement is not None
    return judgement_words(attempt.judgement, attempt.answer.source)


def build_words(judgement: Judgement, source: str) -> str:
    """Returns as text whether a kernel compiles and its calls return, without the correctness of the outputs."""
    if judgement.report.verdict in RETURNS:
        return read_template("built")
    return judgement_words(judgement, source)


def judgement_words(judgement: Judgement, source: str) -> str:
    """Returns a verdict as text. source: the kernel's text."""
    told = fill_template("verdict", verdict=judgement.report.verdict, facts="").rstrip()
    return "\n\n".join(filter(None, [told, judgement_facts(judgement, source)]))


def judgement_facts(judgement: Judgement, source: str) -> str:
    """Returns the facts besides the verdict as text: errors, times, the failure and the printed output."""
    report = judgement.report
    parts = ["\n".join(_facts(report))]
    failure = report.failure
    if failure is not None and failure.line is not None:
        parts.append("Around that line:\n\n" + fenced(_around(source, failure.line), "python"))
    if failure is not None and failure.text.strip():
        parts.append(fill_template("foreign", text=foreign(failure.text)))
    if judgement.printed.strip():
        parts.append(fill_template("printed", text=foreign(judgement.printed)))
    return "\n\n".join(filter(None, parts))


def _facts(report: RunRecord) -> list[str]:
    lines = []
    failure = report.failure
    if failure is not None:
        lines.append(f"- Phase {failure.phase}" + (f", rank {failure.rank}" if failure.rank is not None else ""))
        lines.append(f"- What happened, in words that may be the kernel's:\n{fenced(one_line(failure.message)[:500])}")
        if failure.line is not None:
            lines.append(f"- Line {failure.line} of your file")
        if failure.index is not None:
            where = f"output {failure.output}, index {failure.index}"
            values = f"expected {one_line(failure.expected or '?')[:100]}, got {one_line(failure.got or '?')[:100]}"
            lines.append(f"- First wrong element: {_quoted(where)}: {values}")
        if failure.wrong_share:
            lines.append(f"- Wrong elements: {failure.wrong_share:.3%}")
        lines.append(f"- Advice: {failure.advice or ADVICE[report.verdict]}")
    elif report.verdict is not Verdict.PASS:
        lines.append(f"- {_quoted(report.detail, 500)}")
    (_, told), why = told_parts(report)
    if told:
        lines.append(f"- What the clocks say: {told}")
    if why:
        lines.append(
            f"- Batches of many calls looked faster, and single calls do not confirm it. {why} Only work that a call does"
            " on its own inputs, within its own time, counts."
        )
    for fact in facts(report):
        if fact.kind != HARNESS:
            lines.append(f"- {fact.name}: {_quoted(fact.text, 400) if fact.kind == ELSEWHERE else fact.text}")
    if report.one_size_only:
        lines.append("- The kernel must be right at every legal size.")
    return lines


def _quoted(text: str, most: int = 200) -> str:
    """Quotes untrusted text within a sentence. Backticks in it are replaced, so that they cannot end the quotation."""
    return f"`{one_line(text)[:most].replace('`', chr(39))}`"


def _around(source: str, line: int) -> str:
    lines = source.splitlines()
    first = max(1, line - _AROUND)
    shown = lines[first - 1 : line + _AROUND]
    return "\n".join(f"{'>' if number == line else ' '}{number:4} {text}" for number, text in enumerate(shown, first))
