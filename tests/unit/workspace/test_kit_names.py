"""The names of the kit that the editor offers: those of its modules, read without importing them."""

import importlib
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

from arena.workspace.kit_names import MODULES, KitName, kit_names


def offered(module: ModuleType) -> set[str]:
    """Returns the public functions and attributes that a module defines itself."""
    functions = {
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    }
    return {name for name in functions | set(module.__annotations__) if not name.startswith("_")}


@pytest.mark.slow  # imports torch
@pytest.mark.parametrize("name", MODULES)
def test_the_names_are_what_the_kit_offers(name: str) -> None:
    module = importlib.import_module(f"sandbox.kit.{name}")
    table = {each.name: each for each in kit_names(name)}
    assert set(table) == offered(module)
    for each in table.values():
        assert each.doc
        if each.parameters:
            function = getattr(module, each.name)
            documented = inspect.getdoc(function) or ""
            assert " ".join(documented.split()).startswith(each.doc)
            written = eval(f"lambda {each.parameters[1:-1]}: None", vars(module))
            same = inspect.signature(written).parameters
            for parameter in inspect.signature(function).parameters.values():
                assert str(parameter.replace(annotation=inspect.Parameter.empty)) == str(same[parameter.name])
            assert len(same) == len(inspect.signature(function).parameters)


def test_signature_has_its_types_and_attribute_none() -> None:
    names = {each.name: each for each in kit_names("symm")}
    assert names["stage"].call == "symm.stage(x, tag=None)"
    assert names["stage"].types == "(x: torch.Tensor, tag: str | None=None) -> torch.Tensor"
    assert names["out"].call == "symm.out(shape, dtype, tag=None, ring=None)"
    assert names["rank"] == KitName("symm", "rank", "", ": int", "This rank, from 0 to world - 1.")


def test_reading_names_imports_neither_torch_nor_kit() -> None:
    code = (
        "import sys; from arena.workspace.kit_names import MODULES, kit_names; list(map(kit_names, MODULES));"
        "sys.exit(any(name in sys.modules for name in ('torch', 'cupy', 'sandbox.kit')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
