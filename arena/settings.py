"""The user's settings, in one TOML file.

The structs below are the whole schema. The settings screen, the file's comments and the messages are derived from them.
"""

import math
import tomllib
from collections.abc import Mapping
from datetime import date, time
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from arena.errors import MachineError, SettingsError, why
from arena.paths import Paths, make_folder, write_atomically, writing

BUDGET_WORDS = "Measuring time in seconds. Timing stops earlier when both clocks can conclude."
MOST_RANKS, MOST_ROUNDS = 64, 10_000
LEAST_BUDGET_S, MOST_BUDGET_S = 0.1, 600.0
OF_A_FEW_WORDS = ("device", "preset", "dtype")
_THEMES = Path(__file__).parent.parent / "themes"


def provider_names() -> list[str]:
    """Returns the names of all protocols: those of the modules in arena/models/providers, which this module does not import."""
    folder = Path(__file__).parent / "models" / "providers"
    return sorted(file.stem for file in folder.glob("*.py") if not file.stem.startswith("_"))


def choices_of(name: str) -> tuple[str, ...]:
    """Returns the allowed words of a setting; empty if it is not limited to a few words.

    Their sources are imported in here, because the app reads its settings before its first paint.
    """
    from problems.specification import DTYPE_BYTES, PRESETS
    from sandbox.machine.devices import KINDS

    words = {"device": ("auto", *KINDS), "preset": ("", *PRESETS), "dtype": ("", *DTYPE_BYTES)}
    return words.get(name, ())


class ModelSettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True):
    """One model that can write kernels: a table [models.NAME]. It has the name of the key's source, no key."""

    provider: Annotated[str, Meta(description="Which protocol: openai_chat, openai_responses, anthropic or gemini.")]
    model: Annotated[str, Meta(description="The model's name at the provider.", min_length=1)]
    base_url: Annotated[str, Meta(description="Where the provider is; empty takes its own. Local servers go here.")] = (
        ""
    )
    key_env: Annotated[
        str, Meta(description="Environment variable (or keyring entry) with the key; empty takes the provider's.")
    ] = ""
    price_in: Annotated[float, Meta(description="US dollars per million tokens read.", ge=0.0)] = 0.0
    price_out: Annotated[float, Meta(description="US dollars per million tokens written.", ge=0.0)] = 0.0
    max_tokens: Annotated[
        int, Meta(description="Maximum tokens per answer, reasoning included.", ge=16, le=10_000_000)
    ] = 32_768
    temperature: Annotated[
        Annotated[float, Meta(ge=0.0, le=2.0)] | None, Meta(description="Sampling temperature; left out unless set.")
    ] = None
    timeout_s: Annotated[float, Meta(description="Seconds for one whole answer.", ge=1.0, le=86_400.0)] = 3600.0
    stall_s: Annotated[
        float, Meta(description="Seconds without data before the request is aborted.", ge=0.1, le=86_400.0)
    ] = 300.0
    retries: Annotated[int, Meta(description="How often a failed request is tried again.", ge=0, le=20)] = 4
    tools: Annotated[
        bool,
        Meta(description="Whether an agent may call the arena's tools: compile, run, kit_docs. Off: it only writes."),
    ] = True
    extra: Annotated[
        dict[str, Any], Meta(description='Fields added to the request, such as reasoning_effort = "high".')
    ] = {}
    omit: Annotated[
        list[str], Meta(description='Fields left out of the request, such as "stream_options" or "max_tokens".')
    ] = []

    @property
    def is_free(self) -> bool:
        """Whether its tokens cost nothing: it is the model of `pkb-arena stand-in`."""
        return self.model == "stand-in"


class AgentSettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True):
    """An agent program that can play: a table [agents.NAME]. It runs in a jail of its own."""

    command: Annotated[
        list[str], Meta(description="Program and arguments; empty takes the arena's own for a known program.")
    ] = []
    model: Annotated[
        str, Meta(description="The model whose provider it may reach, as in model:NAME; empty: it reaches none.")
    ] = ""
    minutes: Annotated[float, Meta(description="Time for one attempt.", gt=0.0, le=1440.0)] = 30.0
    memory_mib: Annotated[
        int, Meta(description="Maximum MiB of memory, its files in /tmp and /dev/shm included.", ge=64, le=1 << 24)
    ] = 4096
    processes: Annotated[int, Meta(description="Maximum number of processes, threads included.", ge=16, le=100_000)] = (
        1024
    )
    disk_mib: Annotated[int, Meta(description="Maximum MiB of files in /tmp, and in /dev/shm.", ge=1, le=1 << 24)] = (
        2048
    )
    cpu_minutes: Annotated[
        float, Meta(description="Maximum minutes of CPU time, summed over all processors.", gt=0.0, le=1e6)
    ] = 60.0
    readable: Annotated[
        list[str], Meta(description="Folders and files beside the program's own that it may read.")
    ] = []
    environment: Annotated[dict[str, str], Meta(description="Variables beside PATH and LANG.")] = {}


class WrongTable(msgspec.Struct, frozen=True):
    """A table of a model or an agent program that cannot be used. It is kept when the file is written again."""

    why: str
    values: Any


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """All settings. The settings screen and the file show the description of each field."""

    theme: Annotated[str, Meta(description="Colours of the app.")] = "dark"
    device: Annotated[
        str, Meta(description="Where kernels run: auto takes the GPUs if there are any, else CPU ranks.")
    ] = "auto"
    world: Annotated[
        int,
        Meta(
            description="Number of ranks; 0 takes 2 on CPU, and all GPUs that the problem allows.", ge=0, le=MOST_RANKS
        ),
    ] = 0
    preset: Annotated[str, Meta(description="Sizes: tiny, paper or production; empty takes what suits the device.")] = (
        ""
    )
    dtype: Annotated[str, Meta(description="Run dtype, such as bfloat16; empty takes the problem's own.")] = ""
    seconds: Annotated[float, Meta(description=BUDGET_WORDS, ge=LEAST_BUDGET_S, le=MOST_BUDGET_S)] = 2.5
    live_s: Annotated[
        float, Meta(description="Seconds that the app goes on measuring after a verdict; 0: not at all.", ge=0, le=600)
    ] = 60.0
    editor: Annotated[str, Meta(description="Command that opens a kernel outside the app; empty takes $EDITOR.")] = ""
    vim: Annotated[bool, Meta(description="Keys of vim in the editor.")] = False
    bell: Annotated[bool, Meta(description="Ring the terminal's bell when a run ends.")] = False
    thunderkittens: Annotated[
        str,
        Meta(
            description="Checkout of ThunderKittens for the backend kittens; THUNDERKITTENS_ROOT overrides it. Read at the start."
        ),
    ] = ""
    problem_dirs: Annotated[
        list[str], Meta(description="Folders with problems of your own, beside the built-in ones.")
    ] = []
    keymap: Annotated[
        dict[str, str], Meta(description='Keys of your own: the action\'s name = the key, such as run = "ctrl+r".')
    ] = {}
    models: Annotated[
        dict[str, ModelSettings], Meta(description="Models that write kernels: a table [models.NAME] each.")
    ] = {}
    agents: Annotated[
        dict[str, AgentSettings], Meta(description="Agent programs that play: a table [agents.NAME] each.")
    ] = {}
    wrong: dict[str, WrongTable] = {}
    """By name, such as "models.mine": the tables of the file that cannot be used. No key of the file."""

    def why_wrong(self, table: str, name: str) -> str:
        """Why a table cannot be used; empty if there is no such table, or it can be used."""
        found = self.wrong.get(f"{table}.{name}")
        return found.why if found is not None and name not in getattr(self, table) else ""

    @property
    def problem_folders(self) -> list[Path]:
        """problem_dirs as paths, `~` expanded."""
        return [Path(folder).expanduser() for folder in self.problem_dirs]


TABLES: dict[str, type[msgspec.Struct]] = {"models": ModelSettings, "agents": AgentSettings}
"""The settings that are tables, with the schema of their entries."""


class SettingField(msgspec.Struct, frozen=True):
    """One field of the schema, for the settings screen."""

    name: str
    kind: type
    """str, int, float, bool, list or dict."""
    default: Any
    """`msgspec.NODEFAULT` if a value is required."""
    description: str
    choices: tuple[str, ...] = ()


def setting_fields(schema: type[msgspec.Struct] = Settings) -> list[SettingField]:
    """Returns the fields of a schema in the order of the file, without `TABLES`.

    schema: `Settings`, or one of `TABLES`.
    """
    hints = get_type_hints(schema, include_extras=True)
    fields = []
    for field in msgspec.structs.fields(schema):
        if field.name in TABLES or field.name == "wrong":
            continue
        annotation = hints[field.name]
        kind = annotation.__origin__
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        description = next(meta.description for meta in annotation.__metadata__ if isinstance(meta, Meta))
        choices = choices_of(field.name)
        fields.append(SettingField(field.name, getattr(kind, "__origin__", kind), default, description or "", choices))
    return fields


def load_settings(paths: Paths) -> Settings:
    """Reads the settings file; returns the defaults if there is none.

    Raises:
        MachineError: the system does not let this user read the file.
        SettingsError: it is not UTF-8 text or not TOML, or has an unknown key or an invalid value. A wrong table of a model
            or an agent program is no error: it goes to `wrong`.
    """
    path = paths.settings_file
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Settings()
    except (OSError, UnicodeDecodeError) as error:
        kind = MachineError if isinstance(error, OSError) else SettingsError
        raise kind(f"{path} cannot be read: {why(error)}", "make it readable, or move it away") from None
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}", "correct that line") from None
    wrong = _take_wrong_tables(values)
    settings = msgspec.structs.replace(check_settings(values, str(path)), wrong=wrong)
    if settings.theme not in (names := theme_names(paths)):
        advice = f"choose from {', '.join(names)}, or write {paths.config / 'themes' / settings.theme}.toml"
        raise SettingsError(f"{path}: there is no theme {settings.theme!r}", advice)
    return settings


def _take_wrong_tables(values: dict[str, Any]) -> dict[str, WrongTable]:
    """Takes the tables out of `values` that cannot be used; returns them by name."""
    wrong: dict[str, WrongTable] = {}
    for table in TABLES:
        entries = values.get(table)
        if not isinstance(entries, dict):
            continue
        for name in list(entries):
            try:
                check_settings({table: {name: entries[name]}})
            except SettingsError as error:
                wrong[f"{table}.{name}"] = WrongTable(error.message, entries.pop(name))
    return wrong


def theme_names(paths: Paths) -> list[str]:
    """Returns the names of the built-in themes and of the user's. The user's may be invalid: the app checks them."""
    names = sorted(file.stem for file in _THEMES.glob("*.toml"))
    for file in sorted((paths.config / "themes").glob("*.toml")):
        try:
            name = tomllib.loads(file.read_text(encoding="utf-8")).get("name", file.stem)
        except (OSError, ValueError, RecursionError):
            name = file.stem
        names.append(str(name))
    return names


def check_settings(values: dict[str, Any], where: str = "") -> Settings:
    """Converts `values` to settings. where: names their source in messages; empty: messages name no source.

    Raises:
        SettingsError: an unknown key, or a value of the wrong type or out of range.
    """
    known = [name for name in Settings.__struct_fields__ if name != "wrong"]
    place = f"{where}: " if where else ""
    for key in values:
        if key not in known:
            import difflib

            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"known keys are {', '.join(known)}"
            raise SettingsError(f"{place}unknown key {key!r}", hint)
    advice = "correct or delete that key" if where else ""
    try:
        settings = msgspec.convert(values, Settings)
    except msgspec.ValidationError:
        from problems.toml_fields import misfit

        raise SettingsError(f"{place}{misfit(values, Settings)}", advice) from None
    if name := _not_finite(values):
        raise SettingsError(f"{place}{name} is not a finite number", advice)
    for key in OF_A_FEW_WORDS:
        if key in values and values[key] not in (choices := choices_of(key)):
            words = ", ".join(choice for choice in choices if choice)
            raise SettingsError(f"{place}{key} is {values[key]!r}; it must be one of {words}", advice)
    for name, model in settings.models.items():
        if model.provider not in (names := provider_names()):
            what = f"models.{name}: provider is {model.provider!r}; it must be one of {', '.join(names)}"
            raise SettingsError(f"{place}{what}", advice)
    return settings


def _not_finite(value: object) -> str:
    """Returns the dotted key of a number that is NaN or infinite, which no range refuses; empty if there is none."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in entries:
        if isinstance(item, float) and not math.isfinite(item):
            return str(key)
        if name := _not_finite(item):
            return f"{key}.{name}"
    return ""


def save_settings(settings: Settings, paths: Paths) -> None:
    """Writes the settings file: every key with its description. Keys with the default are commented out.

    Raises:
        FolderUnwritable: the file was not changed.
    """
    lines = ["# Settings of pkb-arena. A key that is commented out has its default."]
    tables = []
    for field in setting_fields():
        value = getattr(settings, field.name)
        if field.kind is dict:
            tables += ["", f"# {field.description}", f"[{field.name}]"]
            tables += [f"{_text(key)} = {_text(item)}" for key, item in value.items()]
            continue
        mark = "# " if value == field.default else ""
        lines += ["", f"# {field.description}", f"{mark}{field.name} = {_toml(value)}"]
    tables += ["", *_MODELS_EXPLAINED]
    named: dict[str, Mapping[str, msgspec.Struct]] = {"models": settings.models, "agents": settings.agents}
    for table, entries in named.items():
        for name, entry in entries.items():
            tables += ["", f"[{table}.{_text(name)}]"]
            tables += [f"{key} = {_toml(value)}" for key, value in msgspec.to_builtins(entry).items()]
    for key, found in settings.wrong.items():
        table, _, name = key.partition(".")
        if name not in getattr(settings, table):
            tables += ["", f"# Not used: {found.why}"]
            if not isinstance(found.values, dict):
                tables.append(f"# {table}.{_text(name)} = {_toml(found.values)}")
                continue
            tables.append(f"[{table}.{_text(name)}]")
            tables += [f"{_text(row)} = {_toml(item)}" for row, item in found.values.items()]
    make_folder(paths.config)
    with writing(paths.config):
        write_atomically(paths.settings_file, "\n".join([*lines, *tables, ""]).encode())


MODELS_HEAD = "# Models that write kernels"
_MODELS_EXPLAINED = (
    f"{MODELS_HEAD}: a table each, keys never in here. For example:",
    "# [models.opus]",
    '# provider = "anthropic"  # or openai_chat, openai_responses, gemini',
    '# model = "claude-opus-4-7"',
    "# price_in = 5.0  # dollars per million tokens, for the limit",
    "# price_out = 25.0",
    "# A server of your own (vLLM, llama.cpp, Ollama) needs no key:",
    "# [models.local]",
    '# provider = "openai_chat"',
    '# model = "qwen3-coder"',
    '# base_url = "http://127.0.0.1:8000/v1"',
)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, dict):
        pairs = (f"{_text(key)} = {_toml(item)}" for key, item in value.items() if item is not None)
        return "{" + ", ".join(pairs) + "}"
    return str(value) if isinstance(value, date | time) else repr(value)


def _text(value: str) -> str:
    """Formats a TOML basic string. JSON's escapes are valid in TOML; only DEL needs another one."""
    import json

    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
