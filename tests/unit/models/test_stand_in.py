"""The stand-in answers with kernels for the requested problem, in the form of OpenAI's chat completions."""

import json

import httpx
import pytest

from arena.models.answer import kernel_of
from arena.models.stand_in import answer, serve
from arena.paths import Paths
from arena.players.prompt import build_prompt
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue


def kernel_source(text: str) -> str:
    return kernel_of(text).source


CATALOGUE = load_catalogue()


@pytest.mark.parametrize("name", ["1", "8", "13", "63"])
def test_stand_in_answers_with_kernel_despite_example(name: str, paths: Paths) -> None:
    problem = CATALOGUE.find(name)
    setting = choose_setting(problem, Choice(world=2, device="cpu", preset="tiny"), Settings())
    prompt = build_prompt(problem, setting, CATALOGUE, paths, shots=1)
    assert prompt.shots == 1
    whole = str(prompt)
    right = kernel_source(answer(whole, able=0.6, drawn=0.59))
    assert right.strip() == (problem.house_source or problem.baseline_source).strip()
    in_words, unreadable, twice_the_result = (answer(whole, able=0.6, drawn=drawn) for drawn in (0.6, 0.7, 0.85))
    assert "```" not in in_words
    with pytest.raises(SyntaxError):
        compile(kernel_source(unreadable), "kernel.py", "exec")
    assert problem.baseline_source.strip() in twice_the_result
    assert kernel_source(twice_the_result).strip() != problem.baseline_source.strip()


def test_answer_comes_whole_unless_a_stream_is_asked() -> None:
    server = serve(lambda prompt: iter((prompt, "!")))
    url = f"http://127.0.0.1:{server.server_port}/v1/chat/completions"
    asked = {"messages": [{"role": "user", "content": "hello"}]}
    try:
        whole = httpx.post(url, json=asked).json()
        lines = httpx.post(url, json={**asked, "stream": True}).text.split("\n\n")
    finally:
        server.shutdown()
    assert whole["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "hello!"}, "finish_reason": "stop"}
    ]
    assert [json.loads(line[6:])["choices"][0]["delta"].get("content") for line in lines[:3]] == ["hello", "!", None]
