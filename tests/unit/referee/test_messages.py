"""Messages between referee and ranks: one side gets what the other side sends, including descriptors."""

import math
import os
import socket

from sandbox.memory.host import TensorPlace
from sandbox.protocol import frames, messages
from sandbox.protocol.events import OutputError
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import ORDERS, REPLIES, Arm, CompareOutputs, Go, OutputFinding, SlotTable, decode_reply
from sandbox.protocol.verdict import Verdict
from sandbox.worlds.rank_wire import RankWire


def test_every_kind_is_one_thing():
    signals = {kind for kind in Kind if Kind.READY <= kind < Kind.BASELINE_MEASURED}
    assert ORDERS.keys() | REPLIES.keys() | signals == set(Kind)
    assert len({order.kind for order in ORDERS.values()}) == len(ORDERS)


def test_an_order_arrives_with_its_descriptors():
    tables = [
        SlotTable(index, [TensorPlace(f"t{i}", 3, (128, 64), 4096 * i) for i in range(10)]) for index in range(128)
    ]
    mine, theirs = socket.socketpair()
    read, write = os.pipe()
    with mine, theirs:
        messages.send(mine, Arm(tables, checking=True), (write,))
        os.close(write)
        order, fds = messages.receive(theirs)
        assert order == Arm(tables, checking=True)
        os.write(fds[0], b"x")
        assert os.read(read, 1) == b"x"
    for fd in (read, *fds):
        os.close(fd)


def test_an_order_without_fields_is_a_bare_header():
    mine, theirs = socket.socketpair()
    with mine, theirs:
        messages.send(mine, Go())
        mine.sendall(frames.encode(Go.kind))  # the referee sends it like this while timing
        assert [messages.receive(theirs) for _ in range(2)] == [(Go(), []), (Go(), [])]


def test_a_trusted_reply_is_read_whole_in_whatever_pieces_it_comes():
    figures = OutputError("out", False, False, math.inf, math.nan, 0.0, 0.0, 1e-3, 1e-3, first_wrong=[1, 2])
    reply = [OutputFinding(Verdict.WRONG_RESULT, outputs=[figures])]
    mine, theirs = socket.socketpair()
    with mine, theirs:
        messages.reply(mine, CompareOutputs([], 0), reply)
        data = theirs.recv(1 << 16)
        trusted = RankWire(0, True, theirs, -1, bytearray(64))
        for at in range(0, len(data), 5):
            trusted.take_in(data[at : at + 5])
    (answer,) = trusted.answers
    assert answer.kind is Kind.COMPARED
    assert answer.reply[0].verdict is Verdict.WRONG_RESULT
    assert math.isnan(answer.reply[0].outputs[0].max)
    assert decode_reply(frames.decode(data[:16]).kind, data[16:]) is not None


def test_an_untrusted_rank_cannot_send_a_reply():
    mine, theirs = socket.socketpair()
    with mine, theirs:
        untrusted = RankWire(0, False, theirs, -1, bytearray(64))
        untrusted.take_in(frames.encode(Kind.DRAWN, 0, 1 << 40))
    (answer,) = untrusted.answers
    assert answer.reply is None
