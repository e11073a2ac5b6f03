"""Energy per call of both sides, on simulated worlds and with simulated counters."""

from collections.abc import Sequence
from typing import Any, cast

import pytest
from made_kernels import MadeKernel, noisy
from made_machine import MadeGpu, MadeMachine

from sandbox.machine.gpu_counters import EnergyReader, GpuPower, power
from sandbox.machine.nvml import NvmlMissing
from sandbox.machine.placement import RankGpu
from sandbox.protocol.messages import ChooseBatch
from sandbox.timing import energy


class MadeReader:
    """An energy reader that returns the powers of its rows in turn."""

    def __init__(self, *rows: list[GpuPower]) -> None:
        self.rows = list(rows)
        self.gpus: Sequence[RankGpu] = ()
        self.log: list[str] = []

    def __call__(self, gpus: Sequence[RankGpu]) -> EnergyReader:
        self.gpus = gpus
        return cast(EnergyReader, self)

    def begin(self) -> None:
        self.log.append("begin")

    def end(self) -> list[GpuPower]:
        self.log.append("end")
        return self.rows.pop(0)


def measured(gpu: MadeGpu, reader: Any) -> tuple[MadeMachine, Any, list[int]]:
    """Returns (the machine, the energy, the untimed calls of each row)."""
    machine = MadeMachine("made-gpu", MadeKernel(noisy(50.0)))
    rounds = machine.rounds()
    rounds.measure()
    gpu.on_gpus = True
    warm: list[int] = []
    choose = rounds.turns.exchange.arm_and_choose

    def noting(world: Any, order: ChooseBatch) -> None:
        warm.append(order.warm)
        choose(world, order)

    for side in rounds.turns.sides:
        side.exchange.arm_and_choose = noting  # type: ignore[method-assign]
    return machine, energy.measure(rounds.turns, (100.0, 50.0), reader), warm


def test_both_sides_make_rows_of_calls_under_counters(gpu: MadeGpu) -> None:
    reader = MadeReader([GpuPower(400.0, 0.02)] * 2, [GpuPower(300.0, 0.03), GpuPower(320.0, 0.01)])
    _, found, warm = measured(gpu, reader)
    assert found.missing == ""
    assert (found.baseline.watts, found.baseline.joules, found.baseline.error) == (400.0, pytest.approx(0.08), 0.02)
    assert (found.contender.watts, found.contender.joules) == (310.0, pytest.approx(0.031))
    assert warm == [round(energy.ROW_S / 100e-6), round(energy.ROW_S / 50e-6)]
    assert reader.log == ["begin", "end"] * 2
    assert len(reader.gpus) == 2


def test_why_there_is_no_energy_is_said(gpu: MadeGpu) -> None:
    reader = MadeReader([GpuPower(400.0), GpuPower(missing="no energy: 0.80 s are too short")])
    assert measured(gpu, reader)[1].missing == "no energy: 0.80 s are too short"

    def no_driver(gpus: Sequence[RankGpu]) -> EnergyReader:
        raise NvmlMissing("nvmlInit: Driver Not Loaded")

    assert measured(gpu, no_driver)[1].missing == "nvmlInit: Driver Not Loaded"


def test_power_is_between_first_step_and_last() -> None:
    steps = [(0.995, 1.0, 1_000_000), (1.09, 1.1, 1_050_000), (1.19, 1.2, 1_100_000)]
    found = power(steps, 0.3)
    assert found.watts == pytest.approx(500.0)
    assert found.error == pytest.approx(0.05)
    assert power(steps[:2], 0.3).missing == "no energy: 0.30 s are too short, the counter stepped 2 times"
    assert power(steps[:1], 0.3).missing.endswith("stepped once")
    assert power(steps, 0.3, "nvmlInit: no").missing == "no energy: nvmlInit: no"
