import pytest

from arena.errors import MachineError
from arena.machine.facts import is_jail, require_jail
from sandbox.protocol.verdict import ExitCode


@pytest.mark.parametrize("name", ["full", "root", "nested"])
def test_a_jail_lets_model_written_code_run(name):
    assert is_jail(name)
    require_jail(name, unsafe=False)


@pytest.mark.parametrize("name", ["none", ""])
def test_without_one_it_takes_unsafe(name):
    with pytest.raises(MachineError) as refused:
        require_jail(name, unsafe=False)
    assert refused.value.exit_code == ExitCode.ENVIRONMENT
    assert "--unsafe" in refused.value.advice
    require_jail(name, unsafe=True)
