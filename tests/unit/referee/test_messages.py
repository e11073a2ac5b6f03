"""Messages between referee and ranks, and events on their way to the engine and into a journal."""

import math
import mmap
import os
import socket
import tempfile
import threading
import time
import types
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.records.report_text import error_words
from sandbox.memory.host import TensorPlace
from sandbox.protocol import events, frames, messages
from sandbox.protocol.events import BEYOND, OutputError, RankChecked, decode_event, encode
from sandbox.protocol.frames import Kind
from sandbox.protocol.verdict import Verdict
from sandbox.worlds.rank_wire import RankWire


def test_every_kind_is_one_thing():
    signals = {kind for kind in Kind if kind >= Kind.READY}
    assert messages.ORDERS.keys() | signals == set(Kind)
    assert messages.REPLIES.keys() < messages.ORDERS.keys()
    assert len({order.kind for order in messages.ORDERS.values()}) == len(messages.ORDERS)


def test_an_order_arrives_with_its_descriptors():
    tables = [
        messages.SlotTable(index, [TensorPlace(f"t{i}", 3, (128, 64), 4096 * i) for i in range(10)])
        for index in range(128)
    ]
    mine, theirs = socket.socketpair()
    read, write = os.pipe()
    with mine, theirs:
        messages.send(mine, messages.Arm(tables, checking=True), (write,))
        os.close(write)
        order, fds = messages.receive(theirs)
        assert order == messages.Arm(tables, checking=True)
        os.write(fds[0], b"x")
        assert os.read(read, 1) == b"x"
    for fd in (read, *fds):
        os.close(fd)


def test_an_order_without_fields_is_a_bare_header():
    mine, theirs = socket.socketpair()
    with mine, theirs:
        messages.send(mine, messages.Go())
        mine.sendall(frames.encode(messages.Go.kind))  # the referee sends it like this while timing
        assert [messages.receive(theirs) for _ in range(2)] == [(messages.Go(), []), (messages.Go(), [])]


def test_order_is_read_in_whatever_pieces_it_comes():
    mine, theirs = socket.socketpair()
    with mine, theirs, tempfile.TemporaryFile() as file:
        header = frames.encode(messages.Go.kind)
        socket.send_fds(mine, [header[:5]], [file.fileno()])  # a receiver gets no more at once
        mine.sendall(header[5:])
        order, fds = messages.receive(theirs)
        os.close(*fds)
    assert order == messages.Go()


def test_trusted_reply_read_in_whatever_pieces_it_comes():
    figures = OutputError("out", False, False, math.inf, math.nan, 0.0, 0.0, 1e-3, 1e-3, first_wrong=[1, 2])
    reply = [messages.OutputFinding(Verdict.WRONG_RESULT, outputs=[figures])]
    mine, theirs = socket.socketpair()
    with mine, theirs:
        messages.reply(mine, messages.CompareOutputs([], 0), reply)
        data = theirs.recv(1 << 16)
        trusted = RankWire(0, True, theirs, -1, bytearray(64))
        for at in range(0, len(data), 5):
            trusted.take_in(data[at : at + 5])
    (answer,) = trusted.answers
    assert answer.kind is Kind.COMPARE
    assert answer.reply[0].verdict is Verdict.WRONG_RESULT
    assert math.isnan(answer.reply[0].outputs[0].max)
    assert messages.decode_reply(frames.decode(data[:16])[0], data[16:]) is not None


def test_descriptors_belong_to_the_answer_with_them():
    mine, theirs = socket.socketpair()
    with mine, theirs, tempfile.TemporaryFile() as file:
        theirs.setblocking(False)
        messages.reply(mine, messages.CompareOutputs([], 0), [])
        messages.reply(
            mine, messages.MakeArenas(messages.SlotLayout(64, 64, 1, 1, True), own=True, side=0), None, (file.fileno(),)
        )
        trusted = RankWire(0, True, theirs, -1, bytearray(64))
        trusted.read()  # both at once
        assert [(answer.kind, len(answer.fds)) for answer in trusted.answers] == [
            (Kind.COMPARE, 0),
            (Kind.MAKE_ARENAS, 1),
        ]
        trusted.forget_answers()


def test_an_untrusted_rank_cannot_send_a_reply():
    mine, theirs = socket.socketpair()
    with mine, theirs:
        untrusted = RankWire(0, False, theirs, -1, bytearray(64))
        untrusted.take_in(frames.encode(Kind.DRAW, 0, 1 << 40))
    (answer,) = untrusted.answers
    assert answer.reply is None


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


def test_gate_opens_and_ends_with_last_rank(monkeypatch):
    gate = frames.GatePage(2)
    words = memoryview(mmap.mmap(gate.fd, mmap.PAGESIZE)).cast("I")
    started, first, second = words[:1], words[16:17], words[32:33]  # a line of the cache each
    for epoch in (1, 2):
        assert (gate.shut(), gate.finished()) == (epoch, False)
        with monkeypatch.context() as patch:
            patch.setattr(frames.time, "perf_counter_ns", lambda: started[0])
            assert gate.open() == epoch - 1  # the clock starts before the ranks can
        assert started[0] == epoch
        first[0] = epoch
        assert (gate.finished(), gate.wait(0.001)) == (False, None)
        began = time.perf_counter_ns()
        threading.Timer(0.02, second.__setitem__, (0, epoch)).start()
        assert gate.wait(60.0) >= began
        assert gate.finished()
    gate.close()
