"""`pkb-arena mcp`: serves the arena as tools for the user's own agent."""

import click

from arena.cli.display import run_interruptibly
from arena.cli.options import CliSession, open_session, rounds_option, seconds_option, setting_options, unsafe_option
from arena.cli.output import say
from arena.mcp import ArenaTools, Terms
from arena.players.player import MCP
from arena.players.program.mcp_server import require_sdk, serve_stdio
from arena.runs.engine import Engine
from arena.setting_choice import Choice


@click.command()
@setting_options
@rounds_option
@seconds_option
@click.option("--player", default=MCP, show_default=True, metavar="NAME", help="Store results under this name.")
@click.option("--house", is_flag=True, help="Let the agent read house kernels.")
@unsafe_option
def command(choice: Choice, rounds: int | None, seconds: float | None, player: str, house: bool, unsafe: bool) -> None:
    """Serve the arena over stdin and stdout by the Model Context Protocol, for one agent (extra `mcp`).

    Its tools: list, show, new, compile, run, history and kit_docs. Kernels are judged as `run` judges them, in the same jail; the
    options say on what terms, and what setting is taken where a call names none.
    """
    require_sdk()
    session = open_session()
    terms = Terms(choice=choice, rounds=rounds, budget_s=seconds, player=player, house=house, unsafe=unsafe)
    run_interruptibly(_serve(session, terms))


async def _serve(session: CliSession, terms: Terms) -> None:
    async with Engine(session.paths, notify=lambda notice: say(notice.message)) as engine:
        await serve_stdio(ArenaTools(engine, session.catalogue, session.settings, session.paths, terms))
