"""A client of one model: one answer at a time, continued if it was truncated, stopped when the budget is spent."""

import contextlib
from collections.abc import AsyncGenerator, Callable

from arena.errors import UsageError
from arena.models.answer import ModelAnswer, has_whole_kernel, join_continuation, kernel_of
from arena.models.budget import Budget
from arena.models.conversation import (
    AnyPiece,
    CallPart,
    Calls,
    Conversation,
    Finish,
    Message,
    Retry,
    Text,
    Thought,
    read_template,
)
from arena.models.fences import read_answer
from arena.models.keys import Key, key_for
from arena.models.providers import find_provider
from arena.models.stream import Refused, Stream, ToolsRefused
from arena.settings import ModelSettings, Settings, provider_names

CONTINUATIONS = 4
"""Maximum number of continuations of one answer."""


class ModelClient:
    """Gets answers until its budget is spent, or raises PlayerFailed. Use as an async context."""

    def __init__(self, name: str, model: ModelSettings, key: Key, budget: Budget) -> None:
        self.name = f"model:{name}"
        self.model = model
        self.budget = budget
        self._stream = Stream(find_provider(model.provider), model, key)
        self.continued = 0
        """How often the last answer was continued."""
        self.takes_tools = model.tools
        """Whether tools are offered. False once the provider has refused them."""

    async def __aenter__(self) -> "ModelClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.__aexit__()

    async def write(self, conversation: Conversation) -> AsyncGenerator[AnyPiece, None]:
        """Yields one answer. Continuations are joined to it: the texts of all pieces form the whole answer."""
        text = ""
        self.continued = 0
        while True:
            if reached := self.budget.reached:
                yield Finish("budget", reached)
                return
            asked = conversation
            if text:
                asked = conversation.then(
                    Message("assistant", text.rstrip()), Message("user", read_template("continue"))
                )
            finish: Finish | None = None
            more, called = "", False
            async with contextlib.aclosing(self._with_tools_or_without(asked)) as pieces:
                async for piece in pieces:
                    match piece:
                        case Finish():
                            finish = piece
                        case Text() if self.continued:
                            more += piece.text  # yielded later, without the text that it repeats
                        case Text():
                            text += piece.text
                            yield piece
                        case _:
                            called = called or isinstance(piece, CallPart)
                            yield piece
            if more:
                joined = join_continuation(text, more)
                yield Text(joined[len(text) :])
                text = joined
            assert finish is not None
            stuck = self.continued == CONTINUATIONS or (self.continued and not more)
            over = finish.reason not in {"length", "broken"} or not text.strip() or stuck or called
            if over or has_whole_kernel(text):
                if finish.reason == "length" and (not text.strip() or read_answer(text).thinking):
                    used_up = f"its reasoning used up max_tokens ({self.model.max_tokens}): raise it for this model"
                    finish = Finish("length", finish.detail or used_up)
                yield finish
                return
            self.continued += 1

    async def _with_tools_or_without(self, conversation: Conversation) -> AsyncGenerator[AnyPiece, None]:
        """Yields the answer of one request. Repeats the request without tools if the provider refused them."""
        if not self.takes_tools:
            conversation = conversation.offering()
        try:
            async with contextlib.aclosing(self._request(conversation)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        except ToolsRefused as error:
            if any(message.calls for message in conversation.messages):
                raise
            self.takes_tools = False
            yield Retry(1, 0.0, f"asked again without tools: {error.message}", refused=True)
        async with contextlib.aclosing(self._request(conversation.offering())) as pieces:
            async for piece in pieces:
                yield piece

    async def _request(self, conversation: Conversation) -> AsyncGenerator[AnyPiece, None]:
        """Yields the answer of one request, and counts its cost. Ends with `Finish`, even if the budget is spent."""
        self.budget.begin(conversation.characters)
        try:
            async with contextlib.aclosing(self._stream.answer(conversation)) as pieces:
                async for piece in pieces:
                    self.budget.count(piece)
                    yield piece
                    if not isinstance(piece, Finish) and (reached := self.budget.reached):
                        yield Finish("budget", reached)
                        return
        except Refused:
            self.budget.refused()
            raise
        finally:
            self.budget.end()

    async def answer(
        self, conversation: Conversation, tell: Callable[[AnyPiece], None] = lambda piece: None
    ) -> ModelAnswer:
        """Returns one whole answer. tell: called with every piece as it arrives."""
        before = self.budget.spent
        text, thought = list[str](), list[str]()
        calls = Calls()
        finish = Finish("broken")
        async with contextlib.aclosing(self.write(conversation)) as pieces:
            async for piece in pieces:
                tell(piece)
                calls.take(piece)
                match piece:
                    case Text():
                        text.append(piece.text)
                    case Thought():
                        thought.append(piece.text)
                    case Finish():
                        finish = piece
        spent = self.budget.spent - before
        whole = () if finish.reason == "unreadable" else calls.whole
        if not (whole or "".join(text).strip()) and finish.reason == "stop" and kernel_of("".join(thought)).source:
            text = thought  # its server takes the whole answer for reasoning
        return ModelAnswer("".join(text), finish, spent, self.continued, whole, calls.kept)


def find_model(name: str, settings: Settings) -> ModelSettings:
    """Returns the model of that name in the settings, or `PROVIDER:MODEL` with that provider's defaults.

    Raises:
        UsageError: the name is neither.
    """
    if name in settings.models:
        return settings.models[name]
    if why := settings.why_wrong("models", name):
        raise UsageError(f"{why}, so this model cannot be used", "correct its table (see `pkb-arena config path`)")
    provider, colon, model = name.partition(":")
    if colon and model and provider in provider_names():
        return ModelSettings(provider=provider, model=model)
    known = ", ".join(settings.models)
    raise UsageError(
        f"there is no model {name!r} in the settings" + (f"; it has {known}" if known else ""),
        "add a table [models.NAME] (see `pkb-arena config path`), or name one as PROVIDER:MODEL"
        f" ({', '.join(provider_names())}); an agent program plays as agent:PATH in duels and sweeps",
    )


def open_model(name: str, settings: Settings, budget: Budget | None = None) -> ModelClient:
    """Creates the client for a model's name, with its key.

    Raises:
        UsageError: no such model, no key where one is needed, or base_url is no address.
    """
    model = find_model(name, settings)
    key = key_for(find_provider(model.provider), model)
    return ModelClient(name, model, key, budget or Budget(model))
