"""A rank of the baseline world: draws inputs, runs the baseline and the oracle, and compares. Never loads a kernel."""

import os
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from problems.setting import SizesRefused
from sandbox import frames, memory, slots
from sandbox.checks import Limits, OwnError, compare, errors, limits, paper_rule
from sandbox.events import OutputError
from sandbox.frames import Kind
from sandbox.problem_code import Leaves
from sandbox.rank import Rank
from sandbox.trees import flatten, unflatten
from sandbox.verdict import Verdict

WITHHELD_FROM = 64
"""Bytes from which on a tensor is withheld: a smaller one is no work worth doing early."""
Output = tuple[str, list[tuple[str, torch.Tensor]]]


@dataclass
class Side:
    """The arenas of one contender world: what it reads, what it writes, and the byte ranges that it may not read yet."""

    inputs: torch.Tensor
    outputs: torch.Tensor
    withheld: list[tuple[int, int]] = field(default_factory=list)


class TrustedRank(Rank):
    """Rank plus the referee's hands: its messages are believed, so they may carry payloads."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.sides: list[Side] = []
        """One contender; two when they run against each other."""
        self.mine_in = torch.empty(0, dtype=torch.uint8)
        self.mine_out = torch.empty(0, dtype=torch.uint8)
        self.room = 0
        self.in_bytes = self.out_bytes = 0
        self.count = 0
        self.tables: dict[int, list[list[Any]]] = {}
        self.own: list[OwnError] = []
        self.handlers |= {
            Kind.PROBE: self.probe,
            Kind.ARENAS: self.make_arenas,
            Kind.DRAW: self.draw,
            Kind.REVEAL: self.reveal,
            Kind.JUDGE: self.judge,
            Kind.INTACT: self.intact,
            Kind.PEAKS: self.peaks,
            Kind.SYNC: self.sync,
        }

    def reply(self, payload: Any, fds: tuple[int, ...] = ()) -> None:
        """Answers with JSON."""
        frames.send(self.sock, Kind.REPLY, payload, fds=fds)

    def blame(self, error: BaseException) -> None:
        """An exception here is the harness's or the problem's, never the kernel's."""
        kind = Kind.REFUSED if isinstance(error, SizesRefused) else Kind.BROKEN
        text = str(error) if isinstance(error, SizesRefused) else "".join(traceback.format_exception(error))
        self.fail(kind, text)

    def probe(self, payload: Any, fds: list[int]) -> None:
        """Draws and runs the baseline a few times: how large are slots, how long is a call? (collective)"""
        assert self.code is not None
        assert self.setting is not None
        self.solution = self.code.baseline
        in_sizes, out_sizes, seconds, leaves = [], [], [], 0
        self.own = []
        for seed in payload["seeds"]:
            tensors = self.code.draw(self.setting, seed)
            in_sizes.append(slots.lay_out(tensors)[1])
            dist.barrier()
            started = time.perf_counter()
            self.last = flatten(self.code.call(self.code.baseline, tensors, self.setting))
            self.device.synchronize()
            seconds.append(time.perf_counter() - started)
            leaves = max(leaves, len(self.last[1]))
            out_sizes.append(sum(memory.up(t.numel() * t.element_size()) for _, t in self.last[1]))
        self.room = max(16, 2 * leaves)
        capacity = self.code.capacity(self.setting)
        in_bytes = max(in_sizes) if len(set(in_sizes)) == 1 else 2 * max(in_sizes) + memory.PAGE
        out_bytes = capacity or (max(out_sizes) if len(set(out_sizes)) == 1 else 2 * max(out_sizes))
        # Room beyond the baseline's own size, so that a result of the wrong shape is seen and not merely refused.
        out_bytes += slots.header_bytes(self.room) + max(memory.PAGE, min(out_bytes, 1 << 20))
        self.reply(
            {
                "in_bytes": memory.up(in_bytes),
                "out_bytes": memory.up(out_bytes),
                "room": self.room,
                "seconds": min(seconds),
                "sealed": self.device.can_seal(),
            }
        )

    def make_arenas(self, payload: Any, fds: list[int]) -> None:
        """Makes this rank's own arenas and a contender's, and hands the contender's descriptors out."""
        self.in_bytes, self.out_bytes, self.count = (
            payload["in_bytes"],
            payload["out_bytes"],
            payload["slots"],
        )
        self.device.free_cache()
        self.device.sealed = payload["sealed"]
        in_total, out_total = self.in_bytes * self.count, self.out_bytes * self.count
        if payload["own"]:
            self.make_own_arenas(in_total, out_total)
            self.map_slots(self.mine_out, payload)
        while len(self.sides) > payload["side"]:
            gone = self.sides.pop()
            self.device.release(gone.inputs)
            self.device.release(gone.outputs)
        in_fd, inputs = self.device.input_arena(in_total)
        out_fd, outputs = self.device.output_arena(out_total)
        outputs.fill_(slots.POISON)
        self.sides.append(Side(inputs, outputs))
        self.device.synchronize()
        self.reply({}, fds=(in_fd, out_fd))
        os.close(in_fd)
        os.close(out_fd)

    def make_own_arenas(self, in_total: int, out_total: int) -> None:
        """This rank's own; it reads its inputs through the same kind of mapping as the contender does, where there is one."""
        for arena in (self.inputs, self.mine_in, self.mine_out):
            self.device.release(arena)
        if not self.device.sealed:
            self.inputs = self.mine_in = self.mine_out = torch.empty(0)  # frees it before more is asked for
            device = self.device.torch_device
            self.inputs = self.mine_in = torch.empty(in_total, dtype=torch.uint8, device=device)
            self.mine_out = torch.empty(out_total, dtype=torch.uint8, device=device)
            return
        in_fd, self.mine_in = self.device.input_arena(in_total)
        out_fd, self.mine_out = self.device.output_arena(out_total)
        self.inputs = self.device.map_input(in_fd, in_total)
        os.close(in_fd)
        os.close(out_fd)

    def draw(self, payload: Any, fds: list[int]) -> None:
        """Fills slots with fresh iterations; the contenders get their floating tensors with GO."""
        assert self.code is not None
        assert self.setting is not None
        touched = self.touched(payload["sides"]) if payload["intact"] else []
        for side in self.sides:
            side.withheld = []
        tables = []
        for index, seed in enumerate(payload["seeds"]):
            tensors = self.code.draw(self.setting, seed)
            table, size = slots.lay_out(tensors)
            if size > self.in_bytes:
                raise SizesRefused(
                    f"inputs of {size} bytes do not fit the slot of {self.in_bytes}; draws differ too much in size"
                )
            self.fill(index * self.in_bytes, table, tensors, payload["sides"])
            tables.append([index, table])
            self.tables[index] = table
        self.device.synchronize()
        self.reply({"tables": tables, "touched": touched})

    def fill(self, base: int, table: list[list[Any]], tensors: Leaves, sides: list[int]) -> None:
        """Writes one slot into the input arenas; the contenders get its floating tensors with their GO."""
        mine = slots.read_inputs(self.mine_in, base, table)
        for name, tensor in tensors.items():
            mine[name].copy_(tensor)
        for index in sides:
            side = self.sides[index]
            theirs = slots.read_inputs(side.inputs, base, table)
            for (name, _, _, offset), tensor in zip(table, tensors.values(), strict=True):
                size = tensor.numel() * tensor.element_size()
                # Integers may shape the arguments (splits, offsets), which are assembled before GO.
                if (tensor.is_floating_point() or tensor.is_complex()) and size >= WITHHELD_FROM:
                    side.withheld.append((base + offset, base + offset + size))
                else:
                    theirs[name].copy_(tensor)

    def reveal(self, payload: Any, fds: list[int]) -> None:
        """Completes a contender's inputs, the last thing before its GO; no side: only looks at the device."""
        side = None if payload["side"] is None else self.sides[payload["side"]]
        # The baseline's are complete; their way into the caches is repeated all the same.
        to = None if payload["own"] or side is None else side.inputs
        foreign = self.device.complete(to, self.mine_in, side.withheld if side else [], payload["watch"])
        self.reply({"foreign_us": foreign})

    def intact(self, payload: Any, fds: list[int]) -> None:
        """Whether anything was written to a poisoned output arena."""
        self.reply({"touched": self.touched(range(len(self.sides)))})

    def sync(self, payload: Any, fds: list[int]) -> None:
        """Says a number back: whatever was asked before it has been answered."""
        self.reply(payload)

    def touched(self, sides: Iterable[int]) -> list[int]:
        """Of these contenders, those whose output arena is not as the poison left it."""
        return [index for index in sides if not bool((self.sides[index].outputs == slots.POISON).all())]

    def peaks(self, payload: Any, fds: list[int]) -> None:
        """Measures what this machine can do (collective)."""
        from sandbox import calibration

        self.reply(calibration.measure(self.device))

    # --- comparing -----------------------------------------------------------------------------------------

    def judge(self, payload: Any, fds: list[int]) -> None:
        """Compares the contender's outputs of some iterations (collective: all ranks judge the same ones).

        The contender's bytes are copied before anything else is done, and the arena is poisoned at once.
        """
        assert self.code is not None
        indices: list[int] = payload["slots"]
        size = self.out_bytes
        theirs = self.sides[payload["side"]].outputs
        copies = [theirs[i * size : (i + 1) * size].clone() for i in indices]
        if payload["poison"]:
            theirs.fill_(slots.POISON)
            if not payload["ran"]:
                self.mine_out.fill_(slots.POISON)  # both worlds find their outputs in the same state
        self.device.synchronize()
        findings = [
            self.judge_one(index, copy, payload["ran"]) for index, copy in zip(indices, copies, strict=True)
        ]
        if payload["poison"] and payload["ran"]:
            self.mine_out.fill_(slots.POISON)
        self.reply({"findings": findings})

    def judge_one(self, index: int, copy: torch.Tensor, ran: bool) -> dict[str, Any]:
        """The verdict on one slot, with figures per output."""
        assert self.code is not None
        assert self.setting is not None
        tensors = slots.read_inputs(self.inputs, index * self.in_bytes, self.tables[index])
        if ran:
            packed = slots.Unpacked(
                self.mine_out[index * self.out_bytes : (index + 1) * self.out_bytes], self.room
            )
            # What the baseline returned on the host lies in the arena like everything else.
            found = [
                t if device else t.cpu() for t, device in zip(packed.tensors, packed.devices, strict=True)
            ]
            plain: Output = (packed.structure, self.named(packed.structure, found))
        else:
            plain = flatten(self.code.call(self.code.baseline, tensors, self.setting))
        baseline = self.in_order(plain)
        exact = flatten(self.code.canonical(self.code.oracle(tensors, self.setting), self.setting))
        oracle = (
            exact[0],
            [(name, o.to(b.device)) for (name, o), (_, b) in zip(exact[1], baseline[1], strict=True)],
        )
        self.pool_own_errors(baseline, oracle)
        got = slots.Unpacked(copy, self.room)
        finding = self.structure(got, plain)
        if finding is not None:
            return finding
        try:
            ordered = self.in_order((got.structure, self.named(got.structure, got.tensors)))
        except Exception as error:
            return _failed(Verdict.WRONG_RESULT, f"the outputs do not belong together: {error}")
        figures: list[OutputError] = []
        worst = Verdict.PASS
        paper = True
        pairs = zip(ordered[1], baseline[1], oracle[1], strict=True)
        for position, ((name, y), (_, b), (_, o)) in enumerate(pairs):
            if y.shape != b.shape:
                return _failed(
                    Verdict.WRONG_STRUCTURE,
                    f"output {name} has {list(y.shape)} after ordering, not {list(b.shape)}",
                    name,
                )
            own = self.own[position]
            here = y.to(b.device)
            figure, verdict = compare(name, here, b, o, own, self.held(name, b, own))
            figures.append(figure)
            paper &= paper_rule(here, b)
            if worst is Verdict.PASS:
                worst = verdict
        return {
            "verdict": worst.value,
            "message": "",
            "outputs": msgspec.to_builtins(figures),
            "paper": paper,
        }

    def in_order(self, output: Output) -> Output:
        """Outputs in canonical order, where the problem leaves the order free."""
        assert self.code is not None
        assert self.setting is not None
        if getattr(self.code.inputs, "canonical", None) is None:
            return output
        tree = unflatten(output[0], [tensor for _, tensor in output[1]])
        return flatten(self.code.canonical(tree, self.setting))

    @staticmethod
    def named(structure: str, tensors: list[torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
        """Tensors with their paths in the structure."""
        return [
            (name, t) for (name, _), t in zip(flatten(unflatten(structure, tensors))[1], tensors, strict=True)
        ]

    def pool_own_errors(self, baseline: Output, oracle: Output) -> None:
        """The baseline's error per output: the largest over ranks and iterations so far (collective)."""
        found = [
            errors(b, o)
            if (b.dtype.is_floating_point or b.dtype.is_complex) and b.shape == o.shape
            else OwnError()
            for (_, b), (_, o) in zip(baseline[1], oracle[1], strict=True)
        ]
        self.own += [OwnError()] * (len(found) - len(self.own))
        pooled = [mine.pooled(new) for mine, new in zip(self.own, found, strict=False)]
        figures = torch.zeros(2 * 64, dtype=torch.float64, device=self.device.torch_device)
        for i, error in enumerate(pooled[:64]):
            figures[2 * i], figures[2 * i + 1] = error.rms, error.max
        dist.all_reduce(figures, op=dist.ReduceOp.MAX)
        figures = figures.cpu()
        self.own = [
            OwnError(float(figures[2 * i]), float(figures[2 * i + 1])) if i < 64 else error
            for i, error in enumerate(pooled)
        ]

    def held(self, name: str, tensor: torch.Tensor, own: OwnError) -> Limits:
        """The limits of one output."""
        assert self.code is not None
        assert self.setting is not None
        check = self.code.problem.check
        exact = "*" in check.exact or name in check.exact
        return limits(tensor.dtype, own, *check.floor(_plain(self.setting.dtype)), exact)

    def structure(self, got: slots.Unpacked, plain: Output) -> dict[str, Any] | None:
        """What is wrong with the containers, shapes and dtypes; None when nothing is."""
        if not got.written:
            return _failed(Verdict.PROTOCOL, "an iteration's output never arrived")
        if not got.sound:
            return _failed(Verdict.PROTOCOL, "an output slot holds what the harness never writes")
        if got.structure != plain[0]:
            return _failed(
                Verdict.WRONG_STRUCTURE, f"returned {got.structure[:200]}, expected {plain[0][:200]}"
            )
        for i, (name, b) in enumerate(plain[1]):
            y = got.tensors[i]
            if y.dtype != b.dtype:
                return _failed(
                    Verdict.WRONG_STRUCTURE,
                    f"output {name} is {_plain(y.dtype)}, expected {_plain(b.dtype)}",
                    name,
                )
            if y.shape != b.shape:
                return _failed(
                    Verdict.WRONG_STRUCTURE,
                    f"output {name} has shape {list(y.shape)}, expected {list(b.shape)}",
                    name,
                )
            if got.devices[i] != (0 if b.device.type == "cpu" else 1):
                return _failed(Verdict.WRONG_STRUCTURE, f"output {name} is on the wrong device", name)
            if not _dense(list(y.shape), got.strides[i]) and got.strides[i] != list(b.stride()):
                return _failed(
                    Verdict.WRONG_STRUCTURE,
                    f"output {name} has strides {got.strides[i]}: return it contiguous",
                    name,
                )
        return None


def _dense(shape: list[int], strides: list[int]) -> bool:
    if 0 in shape:
        return True
    step = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and stride != step:
            return False
        step *= n
    return True


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _failed(verdict: Verdict, message: str, output: str | None = None) -> dict[str, Any]:
    return {"verdict": verdict.value, "message": message, "output": output, "outputs": [], "paper": False}
