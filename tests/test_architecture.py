"""The shape of the code: layers import downwards only, modules and functions stay small, start-up stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "hbench").rglob("*.py"))
# A name stands for a module, or for a package and all in it; the longest that fits counts.
LAYERS = [
    {"errors", "registry", "paths", "version", "atomic", "arrow_arrays", "schema", "source"},
    {
        *("tree", "canonical", "similarity", "vectors", "ranking", "relevance", "metrics", "metric_name"),
        *(
            "significance",
            "protocol",
            "by_name",
            "conditions",
            "measure",
            "kernel",
            "whole",
            "plain",
            "steps",
            "order",
            "plan",
            "compiled",
            "instructions",
            "compress",
            "product",
            "scores",
            "sums",
            "batch",
            "values",
            "job",
            "threads",
            "tiles",
            "triangle",
        ),
    },
    {
        *("manifest", "embeddings", "runs", "fetch", "report", "report_table", "leaderboard", "comparison", "sheet"),
        *("tree.files", "tree.record", "array_files"),
    },
    {"evaluation", "scoring", "submission", "examination", "resume", "shards", "listed", "datasets"},
    {"train", "losses", "cluster", "device", "site"},
    {"cli"},
]


def layer_of(parts):
    known = {name: level for level, names in enumerate(LAYERS) for name in names}
    name = ".".join(part for part in parts if part != "__init__")
    fitting = [known_name for known_name in known if f"{name}.".startswith(f"{known_name}.")]
    return known[max(fitting, key=len)] if fitting else None


def imports_of(tree):
    """Every hbench module a file imports, also inside functions, but not those under TYPE_CHECKING."""
    typing_only = {
        id(node)
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and isinstance(test.test, ast.Name) and test.test.id == "TYPE_CHECKING"
        for node in ast.walk(test)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "hbench":
            yield from (alias.name.split(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hbench."):
            yield node.module.split(".")[1:]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1:] for alias in node.names if alias.name.startswith("hbench."))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_its_own_layer_or_lower_ones(path):
    own = path.relative_to(ROOT / "hbench").with_suffix("").parts
    if own == ("__init__",) or own[-1] == "__main__":
        return
    level = layer_of(own)
    assert level is not None, f"{path} has no layer: name it in LAYERS"
    for imported in imports_of(ast.parse(path.read_text())):
        below = layer_of(imported)
        assert below is not None, f"{path} imports {imported}, which has no layer"
        assert below <= level, f"{'.'.join(own)} (layer {level}) imports {'.'.join(imported)} (layer {below})"


def test_hbench_never_imports_the_pipelines():
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = (
                    [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                )
                assert not any(name.split(".")[0] == "pipelines" for name in names), path


@pytest.mark.parametrize(
    "path", [*MODULES, *sorted((ROOT / "pipelines").rglob("*.py"))], ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_module_and_its_functions_stay_small(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 250, f"{path} has {len(text.splitlines())} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            doc = ast.get_docstring(node, clean=False) or ""
            lines = node.end_lineno - node.lineno + 1 - len(doc.splitlines())
            assert lines <= 40 or is_command(node), f"{path}: {node.name} has {lines} lines beside its docstring"
            positional = sum(argument.arg not in ("self", "cls") for argument in node.args.args)
            assert positional <= 5 or is_command(node) or node.name == "forward", (
                f"{path}: {node.name} takes {positional} positional arguments"
            )


def is_command(node):
    """A click command's arguments are its options: they are counted by its help."""
    return any("command" in ast.dump(decorator) for decorator in node.decorator_list)


def test_the_packages_that_are_installed_are_all_there_are():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = [".".join(path.parent.relative_to(ROOT).parts) for path in ROOT.glob("*/**/__init__.py")]
    found = [name for name in found if name.split(".")[0] in ("hbench", "pipelines")]
    assert sorted(listed) == sorted([*found, "hbench.leaderboards"])


@pytest.mark.parametrize("statement", ["import hbench", "import hbench.cli; hbench.cli.main()"])
def test_start_up_loads_no_heavy_library(statement):
    heavy = {"torch", "sklearn", "numba", "faiss", "matplotlib", "pandas", "scipy.stats", "networkx"}
    code = f"import sys; sys.argv = ['hbench', '--help']\ntry: {statement}\nfinally: print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    loaded = set(run.stdout.split())
    assert not loaded & heavy


def test_evaluating_loads_no_library_that_it_does_not_need():
    code = "import sys, hbench.cli.evaluate, hbench.datasets, hbench.submission; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not set(run.stdout.split()) & {"torch", "sklearn", "faiss", "pandas", "requests", "networkx"}


def test_python_m_hbench_is_the_command():
    run = subprocess.run(
        [sys.executable, "-m", "hbench", "--version"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert run.stdout.startswith("hbench")
    assert (ROOT / "hbench" / "py.typed").exists()


def test_an_interrupt_while_the_command_line_loads_is_answered_in_a_line(monkeypatch, capsys):
    from hbench.__main__ import main

    class Loading(types.ModuleType):
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "hbench.cli", Loading("hbench.cli"))
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "hbench: interrupted\n"
