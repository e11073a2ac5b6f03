"""The kernel that an argument of `run` stands for."""

import io
import sys
from pathlib import Path

import pytest

from arena.cli.runs.request import make_request
from arena.cli.session import CliSession, open_session
from arena.errors import UsageError
from arena.setting_choice import Choice

CHOICE = Choice(device="cpu")


@pytest.fixture
def session(home: Path) -> CliSession:
    return open_session()


def test_a_dash_is_standard_input(session: CliSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfx = 1\n")))
    request = make_request(session, "13", Path("-"), CHOICE, None, None, against=Path("house"))
    assert (request.kernel_name, request.source, request.kernel_path) == ("stdin.py", "x = 1\n", "")
    assert request.versus is not None
    assert request.versus.kernel_name == "house.py"


@pytest.mark.parametrize("kernel", ["-", "/dev/zero"])
def test_a_kernel_without_an_end_is_a_usage_error(
    session: CliSession, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/zero") as endless:
        monkeypatch.setattr(sys, "stdin", endless)
        with pytest.raises(UsageError, match="more than 4 MiB"):
            make_request(session, "13", Path(kernel), CHOICE, None, None)
