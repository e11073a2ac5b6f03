"""Proxies and certificates that the environment names: a fault is reported in one sentence that names them."""

from pathlib import Path

import pytest
from model_server import KEY, ModelServer, streamed

from arena.errors import PlayerFailed
from arena.models.conversation import Conversation, Message
from arena.models.model import open_model
from arena.models.network import authorities, proxy_for
from arena.settings import ModelSettings, Settings

ASK = Conversation("", (Message("user", "a kernel, please"),))
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes all proxies and certificates from the environment, so that only the test's count."""
    for name in (*PROXIES, *map(str.upper, PROXIES), "SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TEST_KEY", KEY)
    authorities.cache_clear()


async def failure(url: str = "https://model.invalid/v1", name: str = "m-1") -> str:
    model = ModelSettings(provider="openai_chat", model=name, base_url=url, key_env="TEST_KEY", retries=0)
    async with open_model("test", Settings(models={"test": model})) as client:
        with pytest.raises(PlayerFailed) as raised:
            await client.answer(ASK)
    assert raised.value.advice
    assert KEY not in raised.value.message
    return f"{raised.value.message}; {raised.value.advice}"


@pytest.mark.parametrize(
    ("host", "no_proxy", "goes_through"),
    [
        ("model.example", "", True),
        ("model.example", "*", False),
        ("model.example", "example", False),
        ("model.example", ".example", False),
        ("model.example", "*.example", False),
        ("model.example", "other.example,del.example", True),
        ("model.example", "model.example:8000", False),
        ("model.example", "model.example:8001", True),
        ("10.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "192.168.0.0/16, 10.1.2.3", False),
        ("11.1.2.3", "10.0.0.0/8", True),
        ("[fd00::1]", "fd00::/8", False),
        ("model.example", "10.0.0.0/8,no/cidr/at:all", True),
        ("127.0.0.1", "", False),
        ("localhost", "", False),
        ("[::1]", "", False),
    ],
)
def test_hosts_that_no_proxy_is_for(
    monkeypatch: pytest.MonkeyPatch, host: str, no_proxy: str, goes_through: bool
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert (proxy_for(f"http://{host}:8000/v1") is not None) is goes_through


async def test_this_machine_is_reached_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch, model_server: ModelServer
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere")
    model_server.replies = [streamed("hello")]
    model = ModelSettings(provider="openai_chat", model="m-1", base_url=model_server.url)
    async with open_model("test", Settings(models={"test": model})) as client:
        assert (await client.answer(ASK)).text == "hello"


async def test_own_server_that_is_down_is_named() -> None:
    said = await failure("http://127.0.0.1:9/v1")
    assert said.endswith("; is the server at 127.0.0.1:9 running? check base_url")
    assert (await failure("http://127.0.0.1:9/v1", "stand-in")).endswith("; `pkb-arena stand-in` starts it")


@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        ("http://me:secret@127.0.0.1:9", "through the proxy http://127.0.0.1:9 (ALL_PROXY)"),
        ("socks5://127.0.0.1:9", "m-1 at model.invalid: the proxy"),
        ("nonsense://127.0.0.1:9", "m-1 at model.invalid: the proxy"),
        ("http://[::1", "m-1 at model.invalid: the proxy"),
    ],
)
async def test_proxy_that_fails_is_named_without_its_password(monkeypatch, proxy: str, said: str) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    found = await failure()
    assert said in found
    assert "(ALL_PROXY)" in found
    assert "secret" not in found


async def test_certificates_that_cannot_be_used_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for path, why in ((tmp_path / "missing.pem", "No such file"), (empty, "it has no certificate")):
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        said = await failure()
        assert f"SSL_CERT_FILE names {path}, which cannot be used: {why}" in said


async def test_key_log_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path))
    assert f"SSLKEYLOGFILE names {tmp_path}, which cannot be written: Is a directory" in await failure()
