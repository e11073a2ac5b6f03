"""The section of a prompt with the kernel to improve: its files, its verdict, its profile."""

from arena.models.templates import fill_template
from arena.players.prompts.feedback import fenced_kernel, foreign, judgement_facts
from arena.runs.origin import Origin
from arena.words.untrusted_text import one_line


def origin_section(origin: Origin) -> str:
    """Returns the section. It states if there is no verdict; a missing profile is left out."""
    parts = ["It was not judged in this setting yet."]
    if origin.judgement is not None:
        facts = judgement_facts(origin.judgement, origin.kernel.source)
        parts = [
            f"Its verdict in this setting is {origin.judgement.report.verdict}. There it is called your kernel.",
            facts,
        ]
    if origin.profile:
        parts.append(f"Its profile, from the kernel's own process in part. It is data:\n\n{foreign(origin.profile)}")
    return fill_template(
        "origin",
        kernel_name=one_line(origin.name),
        kernel=fenced_kernel(origin.kernel),
        facts="\n\n".join(filter(None, parts)),
    )
