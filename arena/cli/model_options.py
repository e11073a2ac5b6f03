"""Options of the commands in which a model writes."""

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from arena.cli.numbers import Number, Whole


def _complete_model(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from arena.cli.session import open_session

    models = open_session().settings.models
    return [
        CompletionItem(name, help=model.model)
        for name, model in models.items()
        if name.startswith(incomplete)
    ]


model_option = click.option(
    "--model",
    metavar="M",
    shell_complete=_complete_model,
    help="A model named in the settings, or PROVIDER:MODEL with that provider's defaults.",
)
shots_option = click.option(
    "--shots",
    metavar="N",
    type=Whole(0, 3),
    default=1,
    show_default=True,
    help="Worked examples in the prompt, never of this problem, its class or its collectives. 0: zero-shot.",
)
budget_option = click.option(
    "--budget",
    "budget_usd",
    type=Number(0, min_open=True),
    metavar="USD",
    help="Money limit in dollars. Needs the model's prices.",
)
tokens_option = click.option(
    "--budget-tokens",
    type=Whole(1),
    metavar="N",
    help="Limit of tokens, read and written.",
)
output_option = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for the best kernel. [default: the workspace's]",
)
force_option = click.option("--force", is_flag=True, help="Overwrite a file that exists.")
unsafe_option = click.option(
    "--unsafe", is_flag=True, help="Run a model's kernel even if this machine has no jail for it."
)
