"""What protocols want and say (requests.json, events.json), and differences between servers of one protocol."""

import html
import json
import textwrap
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from model_server import KEY, PROTOCOLS, ModelServer, Reply, Seen, raw, status, streamed

from arena.errors import PlayerFailed
from arena.models import stream as streaming
from arena.models.answer import ModelAnswer, kernel_of, whole_kernel
from arena.models.budget import Spent
from arena.models.conversation import AnyPiece, Conversation, Finish, Message, ToolCall, ToolResult
from arena.models.model import open_model
from arena.models.provider import ErrorEvent
from arena.models.providers import find_provider
from arena.models.stand_in import answer, serve
from arena.paths import Paths
from arena.players.prompt import build_prompt
from arena.setting_choice import Choice, choose_setting
from arena.settings import ModelSettings, Settings
from problems.catalogue import load_catalogue

ASK = Conversation("", (Message("user", "a kernel, please"),))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "FIRST_WAIT_S", 0.02)
    monkeypatch.setattr(streaming, "_LIMIT_NAMES", {})
    monkeypatch.setenv("TEST_KEY", KEY)


async def ask(server: ModelServer, **fields: Any) -> tuple[ModelAnswer, list[AnyPiece]]:
    values = {"provider": "openai_chat", "model": "m-1", "base_url": server.url, "key_env": "TEST_KEY"}
    model = ModelSettings(**(values | fields))
    pieces: list[AnyPiece] = []
    async with open_model("test", Settings(models={"test": model})) as client:
        return await client.answer(ASK, pieces.append), pieces


def whole(value: object) -> Reply:
    return status("200 OK", json.dumps(value))


def chunks(*values: object) -> Reply:
    return raw(b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values))


async def test_kernel_that_a_server_takes_for_reasoning_counts(model_server: ModelServer) -> None:
    thought = {"delta": {"reasoning_content": f"So:\n```python\n{K}```\n"}, "finish_reason": "stop"}
    model_server.replies = [chunks({"choices": [thought]})]
    answer, _ = await ask(model_server)
    assert (answer.outcome, answer.source) == ("kernel", K)


async def test_reasoning_that_used_up_the_limit_is_told(model_server: ModelServer) -> None:
    thought = {"choices": [{"delta": {"reasoning_content": "well, " * 9}}]}
    model_server.replies = [chunks(thought, {"choices": [{"delta": {}, "finish_reason": "length"}]})]
    answer, _ = await ask(model_server, max_tokens=64)
    told = "its reasoning used up max_tokens (64): raise it for this model"
    assert (answer.outcome, answer.reason) == ("truncated", told)


async def test_reasoning_text_over_limit_is_told(model_server: ModelServer) -> None:
    model_server.replies = [streamed("<think>\nwell", finish="length")] * 9
    answer, _ = await ask(model_server, max_tokens=64)
    assert "used up max_tokens (64)" in answer.reason


REFUSED = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."


async def test_other_limit_name_is_tried_once_and_remembered(model_server: ModelServer) -> None:
    refused = status("400 Bad Request", json.dumps({"error": {"message": REFUSED}}))
    model_server.replies = [refused, streamed("hello"), streamed("again")]
    assert (await ask(model_server, retries=0))[0].text == "hello"
    assert (await ask(model_server, retries=0))[0].text == "again"
    names = ("max_tokens", "max_completion_tokens")
    fields = [[name for name in names if name in seen.body] for seen in model_server.seen]
    assert fields == [["max_tokens"], ["max_completion_tokens"], ["max_completion_tokens"]]
    model_server.replies = [refused] * 5
    with pytest.raises(PlayerFailed, match="Unsupported parameter"):
        await ask(model_server, retries=0)


async def test_limit_too_large_is_no_other_name(model_server: ModelServer) -> None:
    words = "max_tokens is too large: 32768. This model supports at most 16384 completion tokens"
    model_server.replies = [status("400 Bad Request", json.dumps({"error": {"message": words}}))] * 2
    with pytest.raises(PlayerFailed, match="too large"):
        await ask(model_server)
    assert len(model_server.seen) == 1


async def test_settings_can_leave_fields_out_of_a_request(model_server: ModelServer) -> None:
    model_server.replies = [streamed("hello")]
    await ask(model_server, omit=["stream_options", "max_tokens"])
    (seen,) = model_server.seen
    assert isinstance(seen, Seen)
    assert set(seen.body) == {"model", "messages", "stream"}
    assert seen.headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"detail": [{"loc": ["body", "seed"], "msg": "not an integer", "type": "int"}]}, "body.seed: not an integer"),
        ({"detail": "no such model"}, "no such model"),
        ({"object": "error", "message": "too long"}, "too long"),
        ([{"error": {"message": "in a list"}}], "in a list"),
        ({"error": "plain"}, "plain"),
        ({"detail": [{"loc": None, "msg": 3}, 4]}, "422"),
        ([], "422"),
        ("text", "422"),
    ],
)
async def test_the_details_of_a_refusal_are_told(model_server: ModelServer, body: object, words: str) -> None:
    model_server.replies = [status("422 Unprocessable Entity", json.dumps(body))]
    with pytest.raises(PlayerFailed, match=words):
        await ask(model_server)


async def test_a_whole_answer_without_a_stream_is_one(model_server: ModelServer) -> None:
    choice = {"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}
    model_server.replies = [whole({"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})]
    answer, _ = await ask(model_server)
    assert (answer.text, answer.outcome) == ("hello", "prose")
    assert (answer.spent.read, answer.spent.written) == (7, 3)


def test_every_text_of_a_turn_counts() -> None:
    turn = Message("assistant", "ab", (ToolCall("run", "{}"),), (ToolResult("run", "xyz"),))
    assert turn.characters == len("abrun{}xyz")


async def test_an_account_without_credit_is_not_asked_again(model_server: ModelServer) -> None:
    body = {"error": {"message": "You exceeded your quota", "type": "insufficient_quota", "code": "insufficient_quota"}}
    model_server.replies = [status("429 Too Many Requests", json.dumps(body))]
    with pytest.raises(PlayerFailed, match="You exceeded your quota") as raised:
        await ask(model_server)
    assert raised.value.advice == "the account has no credit"
    assert len(model_server.seen) == 1


CATALOGUE = load_catalogue()


@pytest.mark.parametrize("name", ["1", "8", "13", "63"])
def test_stand_in_answers_with_kernel_despite_example(name: str, paths: Paths) -> None:
    problem = CATALOGUE.find(name)
    setting = choose_setting(problem, Choice(world=2, device="cpu", preset="tiny"), Settings())
    prompt = build_prompt(problem, setting, CATALOGUE, paths, shots=1)
    assert prompt.shots == 1
    whole = str(prompt)
    right = kernel_of(answer(whole, able=0.6, drawn=0.59)).source
    assert right.strip() == (problem.house_source or problem.baseline_source).strip()
    in_words, unreadable, twice_the_result = (answer(whole, able=0.6, drawn=drawn) for drawn in (0.6, 0.7, 0.85))
    assert "```" not in in_words
    with pytest.raises(SyntaxError):
        compile(kernel_of(unreadable).source, "kernel.py", "exec")
    assert problem.baseline_source.strip() in twice_the_result
    assert kernel_of(twice_the_result).source.strip() != problem.baseline_source.strip()


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


K = '''"""Adds with one kernel."""
import torch.distributed as dist
from sandbox.kit import cuda

SOURCE = r"""
#include <vector>
template <typename T>
__global__ void add(T* x) { if (x[0] < 1 && x[1] > 2) { "$a\\n"; } }
"""
N = 4


def solution(tensor: "list[int]"):
    total = tensor.clone()

    dist.all_reduce(total)
    return total
'''
CALL = {"name": "run", "arguments": {"source": K}}
NESTED = {"name": "run", "arguments": json.dumps({"source": K})}
ADDED = "".join(f"+{line}\n" for line in K.splitlines())
FORMS = {
    "hermes": f"I try it.\n<tool_call>\n{json.dumps(CALL)}\n</tool_call>",
    "hermes_raw_line_ends": '<tool_call>\n{"name": "run", "arguments": {"source": "'
    + K.replace("\\", "\\\\").replace('"', '\\"')
    + '"}}\n</tool_call>',
    "qwen": f"<tool_call>\n<function=run>\n<parameter=source>\n{K}</parameter>\n</function>\n</tool_call>",
    "qwen_unclosed": f"<tool_call>\n<function=run>\n<parameter=source>\n{K}",
    "invoke": f'<function_calls><invoke name="run"><parameter name="source">{K}</parameter></invoke></function_calls>',
    "invoke_escaped": f'<invoke name="run"><parameter name="source">{html.escape(K)}</parameter></invoke>',
    "glm": f"<tool_call>run\n<arg_key>source</arg_key>\n<arg_value>{K}</arg_value>\n</tool_call>",
    "llama": f"<function=run>{json.dumps(CALL['arguments'])}</function>",
    "python_tag_code": f"<|python_tag|>{K}<|eom_id|>",
    "fenced_escaped": f"```python\n{html.escape(K)}```\n",
    "unclosed_fence": f"```python\n{K}Done: it is whole.",
    "after_a_draft": f"```python\ndef solution(x):\n    return x\n```\nNo:\n```json\n{json.dumps(CALL)}\n```",
    "pythonic": f"[run(source={K!r})]",
    "pythonic_fenced": f"```tool_code\nprint(run(source={K!r}))\n```",
    "mistral": f"[TOOL_CALLS][{json.dumps(CALL)}]",
    "mistral_args": f"[TOOL_CALLS]run[ARGS]{json.dumps(CALL['arguments'])}",
    "sections": "<|tool_calls_section_begin|><|tool_call_begin|>functions.run:0<|tool_call_argument_begin|>"
    f"{json.dumps(CALL['arguments'])}<|tool_call_end|><|tool_calls_section_end|>",
    "deepseek": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>run\n```json\n"
    f"{json.dumps(CALL['arguments'])}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "harmony": f"<|channel|>commentary to=functions.run <|constrain|>json<|message|>{json.dumps(CALL['arguments'])}<|call|>",
    "openai_object": json.dumps({"tool_calls": [{"type": "function", "function": NESTED}]}),
    "json_code": json.dumps({"thoughts": "one", "code": K}),
    "json_fence_within": json.dumps({"answer": f"```python\n{K}```"}),
    "json_lines": json.dumps({"code": K.splitlines()}),
    "json_files": json.dumps({"files": {"kernel.py": K}}),
    "python_dict": repr({"code": K}),
    "tag_kernel": f"<kernel>\n{K}</kernel>",
    "tag_attributes": f'<file path="kernel.py" language="python">\n{K}</file>\nDone.',
    "tag_cdata": f"<answer><![CDATA[\n{K}]]></answer>",
    "tag_fence_within": f"<kernel>\n```\n{K}```\n</kernel>",
    "tag_unclosed": f"<kernel>\n{K}",
    "stub_after": json.dumps({"code": K, "sketch": "def solution(x):\n    ...\n"}),
    "python_brackets": f"[PYTHON]\n{K}[/PYTHON]",
    "prose": f"Sure, here is the kernel:\n\n{K}\nIt works because all ranks make the same call.\n\nIs that right?",
    "prose_touching": f"Here it is:\n{K}Done. It works.",
    "prose_indented": f"The kernel is:\n\n{textwrap.indent(K, '    ')}\nGood luck with it.",
    "diff": f"```diff\n{ADDED}```",
    "patch": f"*** Begin Patch\n*** Add File: kernel.py\n{ADDED}*** End Patch",
    "search_replace": f"kernel.py\n<<<<<<< SEARCH\n=======\n{K}>>>>>>> REPLACE",
    "search_replace_all": f"```python\n<<<<<<< SEARCH\ndef solution(x):\n    return x\n=======\n{K}>>>>>>> REPLACE\n```",
    "diff_of_all": f"```diff\n--- a/kernel.py\n+++ b/kernel.py\n@@ -1,2 +1,9 @@\n {ADDED[1:]}-def solution(x):\n```",
    "patch_of_all": f"*** Begin Patch\n*** Update File: kernel.py\n@@\n-import math\n{ADDED}*** End Patch",
    "numbered_as_list": "".join(f"{number}. {line}\n" for number, line in enumerate(K.splitlines(), 1)),
    "before_its_test": f"```python\n{K}```\nA test:\n```python\nfrom kernel import solution\n\nprint(solution(1))\n```",
    "writefile": f"```python\n%%writefile kernel.py\n{K}```",
    "writefile_bare": f"%%writefile kernel.py\n{K}",
    "magics": f"```python\n%%time\n!pip install ninja\n{K}```",
    "heredoc": f"```bash\ncat > kernel.py <<'EOF'\n{K}EOF\npython kernel.py\n```",
    "heredoc_unquoted": "cat > kernel.py <<EOF\n" + K.replace("$", "\\$") + "EOF\n",
    "heredoc_behind": f"cat <<'END' > kernel.py\n{K}END",
    "heredoc_in_call": json.dumps({"name": "bash", "arguments": {"command": f"cat > kernel.py <<'EOF'\n{K}EOF\n"}}),
    "diff_in_words": f"The patch:\n\ndiff --git a/k b/k\n--- /dev/null\n+++ b/k\n@@ -0,0 +1 @@\n{ADDED}\nDone.",
    "writes_a_file": f"```python\nwith open('kernel.py', 'w') as file:\n    file.write({K!r})\n```",
    "writes_a_file_in_heredoc": f"```bash\npython3 - <<'EOF'\nopen('kernel.py', 'w').write(r'''{K}''')\nEOF\n```",
    "call_in_words": f"I call default_api.run(source={K!r}) now. It is right.",
    "backticks": f"{{code: `{K}`}}",
    "yaml": f"thoughts: one\ncode: |\n{textwrap.indent(K, '  ')}done: true\n",
    "notebook": json.dumps(
        {
            "cells": [
                {"cell_type": "code", "source": K[: K.index("N =")].splitlines(keepends=True)},
                {"cell_type": "markdown", "source": ["No"]},
                {"cell_type": "code", "source": K[K.index("N =") :]},
            ]
        }
    ),
    "windows": f"<kernel>\n{K}</kernel>".replace("\n", "\r\n"),
    "copied_from_a_page": f"```python\n{K}```".replace("    ", "\u00a0\u00a0\u00a0\u00a0"),
    "xml_fence": f"```xml\n<kernel>\n{K}</kernel>\n```",
    "begin_end": f"--- BEGIN KERNEL ---\n{K}--- END KERNEL ---",
    "session": "".join(f">>> {line}\n" for line in K.splitlines()),
    "numbered": "".join(f"{number:3} | {line}\n" for number, line in enumerate(K.splitlines(), 1)),
    "numbered_by_a_tool": "".join(f"{number:6}→{line}\n" for number, line in enumerate(K.splitlines(), 1)),
    "numbered_with_letters": "".join(f"L{number}: {line}\n" for number, line in enumerate(K.splitlines(), 1)),
    "notebook_session": "In [1]: " + "   ...: ".join(K.splitlines(keepends=True)) + "Out[1]: None\n",
    "escaped_line_ends": json.dumps(f"```python\n{K}```")[1:-1],
    "glued_to_its_mark": f'<｜DSML｜parameter name="source">{K[K.index("import") :]}</｜DSML｜parameter>',
    "command_list": json.dumps({"cmd": ["bash", "-lc", f"cat > kernel.py <<'EOF'\n{K}EOF"]}),
    "quotes_as_fence": f"<answer>python\n{K}</answer>",
    "after_reasoning_in_brackets": f"[THINK]\n```python\ndef solution(x): pass\n```\n[/THINK]\n{K}",
    "quoted": "".join(f"> {line}\n" for line in K.splitlines()),
    "prose_that_parses": f"It adds.\n\n{K}\n- fast\n",
    "json_cut": f'{{"code": {json.dumps(K)}',
    "macro": f"{{code:python}}\n{K}{{code}}",
    "patch_in_heredoc": f"apply_patch <<'P'\n*** Begin Patch\n*** Add File: kernel.py\n{ADDED}*** End Patch\nP",
    "replaced": f"------- SEARCH\n=======\n{K}+++++++ REPLACE",
    "after_reasoning": f"<think>Maybe {json.dumps({'code': 'def solution(x): return 0'})}</think>\n{json.dumps({'code': K})}",
}


@pytest.mark.parametrize("form", FORMS)
def test_whole_kernel_is_taken(form: str) -> None:
    assert K.endswith(source := kernel_of(FORMS[form]).source)
    assert source.startswith(('"""', "import"))


FILES = {"kernel.py": K, "ops/sum.cu": "__global__ void f();\n"}
FILE_FORMS = {
    "bold": "**{name}**\n\n```\n{text}```\n\n",
    "heading": "### 1. `{name}`\n```cpp\n{text}```\n",
    "colon": "File: {name}:\n\n```python\n{text}```\n",
    "cells": "```python\n%%writefile {name}\n{text}```\n",
    "comment": "Then\n```\n{mark} {name}\n{text}```\n",
    "heredoc": "cat > {name} <<'EOF'\n{text}EOF\n",
    "tag": '<file path="{name}">\n{text}</file>\n',
    "tags": "<write><path>{name}</path>\n<content>\n{text}</content></write>\n",
    "diff": "diff --git a/{name} b/{name}\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n{added}",
    "patch": "*** Add File: {name}\n{added}",
    "dashes": "--- {name} ---\n```\n{text}```\n",
}


def in_files(form: str) -> str:
    whole = "".join(
        FILE_FORMS[form].format(
            name=name, text=text, mark=mark, added="".join(f"+{line}\n" for line in text.splitlines())
        )
        for (name, text), mark in zip(FILES.items(), ("#", "//"), strict=True)
    )
    return f"*** Begin Patch\n{whole}*** End Patch\n" if form == "patch" else whole


@pytest.mark.parametrize(
    "text",
    [
        *map(in_files, FILE_FORMS),
        json.dumps({"files": FILES}),
        json.dumps([{"path": name, "content": text} for name, text in FILES.items()]),
        repr([{"path": "kernel.py"}, *({"path": name, "content": text} for name, text in FILES.items())]),
        json.dumps([{"name": "write", "arguments": {"path": name, "content": text}} for name, text in FILES.items()]),
    ],
)
def test_several_files_are_taken_together(text: str) -> None:
    kernel = kernel_of(text)
    assert kernel.source.removeprefix("# kernel.py\n") == K
    assert list(kernel.files) == ["ops/sum.cu"]
    assert kernel.files["ops/sum.cu"].endswith(FILES["ops/sum.cu"].encode())


@pytest.mark.parametrize(
    "form", ["hermes", "qwen", "json_code", "tag_kernel", "python_brackets", "heredoc_behind", "patch", "diff"]
)
def test_cut_answer_has_only_closed_forms(form: str) -> None:
    cut = FORMS[form].rindex("return total")
    assert whole_kernel(FORMS[form] + "\nAnd so").source == K
    assert whole_kernel(FORMS[form][: cut + len("return total")]).source == ""


@pytest.mark.parametrize(
    "text",
    [
        "```diff\n@@ -1,3 +1,3 @@\n def solution(x):\n-    return x\n+    return x + 1\n```",
        '<tool_call>\n{"name": "run", "arguments": {"source": "def solution(x):',
        '{"code": "def solution(x:"}',
        "<kernel>def solution(x) is hard</kernel>",
        "A function def solution(x) is needed.",
    ],
)
def test_half_a_kernel_is_not_taken(text: str) -> None:
    assert kernel_of(text).source == ""


@pytest.mark.parametrize(
    "text", ["{" * 100_000, '{"a":' * 50_000, "<a>" * 50_000, "x = 1\n" * 20_000 + "def solution("]
)
@pytest.mark.timeout(120)
def test_hostile_answer_is_read_at_once(text: str) -> None:
    assert kernel_of(text + " solution").source == ""


def test_parts_of_a_diff_are_not_joined() -> None:
    first = "--- a/k.py\n+++ b/k.py\n@@ -1,3 +1,4 @@\n import torch\n+N = 1\n def solution(x):\n     return x\n"
    second = "@@ -20,3 +21,4 @@\n def more(x):\n     y = x\n+    y = 2 * y\n     return y\n"
    assert "2 * y" not in kernel_of(f"```diff\n{first}{second}```").source


def test_calls_as_text_are_told() -> None:
    answer = ModelAnswer(
        '<tool_call>\n{"name": "kit_docs", "arguments": {"page": "symm"}}\n</tool_call>', Finish("stop"), Spent()
    )
    assert (answer.outcome, answer.calls_as_text) == ("prose", True)
    assert "tool call as text" in answer.reason
    for text in ("I would call run.", f"{answer.text}\n```python\n{K}```"):
        assert not ModelAnswer(text, Finish("stop"), Spent()).calls_as_text


@pytest.mark.parametrize("line", ["    dist.all_reduce(total", "    return total total", "total = = 1", "def more(:"])
def test_broken_code_is_not_cut_to_whole_kernel(line: str) -> None:
    """Its verdict must say what is broken."""
    broken = f"{K}{line}\n"
    assert kernel_of(f"Here it is:\n\n```python\n{broken}```\nDone.").source == broken
    assert kernel_of(f"Here it is:\n\n{broken}").source == ""
    assert kernel_of(f"Here it is:\n\n{broken}\nIt works.").source == ""


REQUESTS, EVENTS = (
    json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8")) for name in ("requests.json", "events.json")
)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_requests_are_what_each_protocol_wants(protocol: str) -> None:
    talk = msgspec.convert(REQUESTS["conversation"], Conversation)
    bare = ModelSettings(provider=protocol, model="m-1", max_tokens=777)
    extra = {"top_p": 0.9, "generationConfig": {"topK": 3}}
    model = msgspec.structs.replace(bare, temperature=0.5, extra=extra)
    ask = find_provider(protocol).request
    asked = ask(model, "the-key", talk), ask(bare, "", Conversation("", talk.messages[:1]))
    found = json.dumps([[each.path, each.headers, each.body] for each in asked])
    assert json.loads(found) == REQUESTS[protocol]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_events_are_read_as_each_protocol_means(protocol: str) -> None:
    for stream in EVENTS[protocol]:
        read = find_provider(protocol).reader()
        for event, data, pieces in stream:
            try:
                found: object = [
                    repr(each) for each in read(event, data if isinstance(data, str) else json.dumps(data))
                ]
            except (ErrorEvent, ValueError) as error:
                found = f"{getattr(error, 'kind', '')}: {error}"
            assert found == pieces


def test_only_openai_itself_has_new_name_of_limit() -> None:
    for url, name in (
        ("", "max_completion_tokens"),
        ("https://api.openai.com/v1/", "max_completion_tokens"),
        ("http://a/v1", "max_tokens"),
    ):
        model = ModelSettings(provider="openai_chat", model="m-1", max_tokens=777, base_url=url)
        body = find_provider("openai_chat").request(model, "", Conversation("", ())).body
        assert {each: body[each] for each in body if "max" in each} == {name: 777}
