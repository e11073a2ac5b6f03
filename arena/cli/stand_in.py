"""`pkb-arena stand-in`: a model that costs nothing, to see models, agents and duels before one has a key."""

import threading

import click
from msgspec.structs import replace

from arena.cli.options import number_option, open_session
from arena.cli.output import flush, print_line
from arena.errors import MachineError, why
from arena.models.stand_in import NAME, answers, serve
from arena.settings import ModelSettings, save_settings

ABLE = 0.6
"""Share of its answers that are right."""
PAUSE_S = 0.02


@click.command()
@number_option("--port", within=(1, 65535), default=8765, help="Port on 127.0.0.1.")
def command(port: int) -> None:
    """Serve a stand-in for a model on this machine until ctrl+c. It needs no key, no network and no money.

    It answers with the house kernel or the baseline of the problem, and now and then with a wrong kernel, as models do. The
    settings file gets a table for it; delete the table when you no longer need it.
    """
    session = open_session()
    try:
        server = serve(answers(ABLE, pause_s=PAUSE_S), port)
    except OSError as error:
        raise MachineError(f"port {port} cannot be used: {why(error)}", "choose another --port") from None
    address = f"http://127.0.0.1:{server.server_port}/v1"
    model = ModelSettings(provider="openai_chat", model=NAME, base_url=address, tools=False)
    if session.settings.models.get(NAME) != model:
        save_settings(replace(session.settings, models={**session.settings.models, NAME: model}), session.paths)
    print_line(f"{NAME} answers at {address} until ctrl+c; the settings file has it.\nIn another terminal:")
    duel = f"duel 1 --left agent:{NAME} --right house"
    for example in (f"generate 1 --model {NAME}", f"agent 1 --model {NAME} --steps 4", duel):
        print_line(f"    pkb-arena {example}")
    print_line("In the app: m on a problem asks it, d plays a duel against it.")
    flush()
    threading.Event().wait()
