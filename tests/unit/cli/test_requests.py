"""The kernel that an argument of `run` stands for."""

import io
import sys
from pathlib import Path

import pytest

from arena.cli.options import CliSession, open_session
from arena.cli.run import make_request
from arena.errors import UsageError
from arena.runs.judge import header_of
from arena.setting_choice import Choice
from arena.workspace.kernels import read_kernel

CHOICE = Choice(device="cpu")


@pytest.fixture
def session(home: Path) -> CliSession:
    return open_session()


def test_a_dash_is_standard_input(session: CliSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfx = 1\n")))
    request = make_request(session, "13", Path("-"), CHOICE, against=Path("house"))
    assert (request.kernel_name, request.source, request.kernel_path) == ("stdin.py", "x = 1\n", "")
    assert request.versus.kernel_name == "house.py"


@pytest.mark.parametrize("kernel", ["-", "/dev/zero"])
def test_kernel_without_end_is_usage_error(session: CliSession, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/zero") as endless:
        monkeypatch.setattr(sys, "stdin", endless)
        with pytest.raises(UsageError, match="more than 4 MiB"):
            make_request(session, "13", Path(kernel), CHOICE)


def test_a_folder_is_a_kernel_of_several_files(session: CliSession, tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text("x = 1\n")
    (tmp_path / "helper.py").write_text("y = 1\n")
    request = make_request(session, "13", tmp_path, CHOICE, against=tmp_path)
    assert (request.source, request.files) == ("x = 1\n", {"helper.py": b"y = 1\n"})
    assert (request.kernel_name, request.kernel_path) == (f"{tmp_path.name}/kernel.py", str(tmp_path))
    assert request.versus.files == request.files
    assert header_of(request).sha256 == read_kernel(tmp_path).sha256
