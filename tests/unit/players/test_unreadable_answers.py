"""An answer with an unreadable part is a failed attempt: the trace keeps it, and nothing of it is judged."""

import pytest
from model_server import PROTOCOLS, ModelServer, call_events, events, raw, streamed
from scripted_agents import Bench, MakeAgent, fenced, run, source, told

from arena.players.trace import Answered, Called, Wrote


def damaged(told: bytes, after: bytes) -> bytes:
    """Returns the stream with half an event inserted after the event that contains `after`."""
    head, found, tail = told.partition(after)
    event, border, rest = tail.partition(b"\n\n")
    assert found
    assert border
    return head + found + event + border + b'data: {"choices": [{"delta": {"con\n\n' + rest


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_kernel_after_unreadable_event_is_not_judged(
    model_server: ModelServer, made: MakeAgent, bench: Bench, protocol: str
) -> None:
    stream = damaged(events(protocol, fenced("9.9")), b"python")
    model_server.replies = [raw(stream), streamed(fenced("1.2"))]
    agent = made(protocol, steps=2)
    await agent.play()
    assert bench.judged == [source("1.2")]
    first, second = [event for event in told(agent) if isinstance(event, Answered)]
    assert (first.outcome, first.source, second.outcome) == ("unreadable", "", "kernel")
    assert first.reason == "a part of the answer cannot be read"
    assert any(isinstance(event, Wrote) and event.step == 1 for event in told(agent))
    assert "a part of the answer cannot be read" in model_server.seen[1].prompt


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_calls_before_unreadable_event_are_not_made(
    model_server: ModelServer, made: MakeAgent, bench: Bench, protocol: str
) -> None:
    stream = damaged(call_events(protocol, "trying", [run("9.9")]), b'"run"')
    model_server.replies = [raw(stream), streamed(fenced("1.2"))]
    agent = made(protocol, steps=2)
    await agent.play()
    assert bench.judged == [source("1.2")]
    assert not any(isinstance(event, Called) for event in told(agent))
