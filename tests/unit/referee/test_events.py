"""Events on their way to the engine and into a journal."""

import types
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.records.report_text import error_words
from sandbox.protocol import events
from sandbox.protocol.events import BEYOND, OutputError, RankChecked, decode_event, encode


def made_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type, whose floats are of every kind."""
    arguments = [made_of(each) for each in typing.get_args(hint)]
    match typing.get_origin(hint) or hint:
        case types.UnionType:
            return st.one_of(arguments)
        case builtin if builtin is list:
            return st.lists(arguments[0], max_size=2)
        case builtin if builtin is dict:
            return st.dictionaries(*arguments, max_size=2)
        case builtin if builtin is tuple:
            return st.tuples(*arguments)
        case builtin if builtin is float:
            return st.sampled_from([float("inf"), float("-inf"), float("nan"), -1e200, 0.0, 1.5])
        case builtin if builtin is int:
            return st.integers(0, 1 << 40)
        case builtin if isinstance(builtin, type) and issubclass(builtin, msgspec.Struct):
            hints = typing.get_type_hints(builtin)
            return st.builds(builtin, **{name: made_of(hints[name]) for name in builtin.__struct_fields__})
    return st.from_type(hint)


@pytest.mark.parametrize("event", typing.get_args(events.AnyEvent), ids=lambda event: event.__name__)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_every_event_arrives_with_finite_numbers(event: type, data: st.DataObject) -> None:
    sent = encode(data.draw(made_of(event)))
    arrived = decode_event(sent)
    assert encode(arrived) == sent


def test_an_error_without_a_bound_stays_large() -> None:
    figures = OutputError("out", False, False, float("inf"), float("nan"), 0.0, 0.0, 1e-3, 1e-3)
    arrived = decode_event(encode(RankChecked(run_id="1", rank=0, ok=False, outputs=[figures])))
    assert isinstance(arrived, RankChecked)
    assert (arrived.outputs[0].rms, arrived.outputs[0].max) == (BEYOND, BEYOND)
    assert [error_words(error) for error in (BEYOND, 1.82e-3)] == ["infinite", "1.82e-03"]
