"""The arena as the judge of evaluation frameworks (docs/guide/evaluate.md): an Inspect task and a verifiers environment."""

from typing import Any

__all__ = ["KernelEnv", "KernelTaskset"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from pkb_arena import verifiers_environment

        return getattr(verifiers_environment, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
