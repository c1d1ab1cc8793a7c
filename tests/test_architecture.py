"""The shape of the code: wings import only wings before them, functions stay small, start-up stays
light.
"""

import ast
import sys
import types
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import hbench
from tests.command_line import python

pytestmark = pytest.mark.fast

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "hbench").rglob("*.py"))
PIPELINES = sorted((ROOT / "pipelines").rglob("*.py"))
WINGS = [
    "core",
    "sheets",
    "tree",
    "metrics",
    "trust",
    "datasets",
    "engine",
    "records",
    "submissions",
    "evaluation",
    "auditing",
    "boards",
    "losses",
    "look",
    "train",
    "integrations",
    "cli",
]
SHELVES = {
    "cli",
    "datasets/benchmarks",
    "train/recipes",
    "losses/baselines",
}  # many entries of one kind


def imported_by(tree, *, for_types=False):
    """Every hbench module a file imports, also inside functions; those under TYPE_CHECKING only
    `for_types`.
    """
    typing_only = {
        id(node)
        for test in ast.walk(tree)
        if isinstance(test, ast.If)
        and isinstance(test.test, ast.Name)
        and test.test.id == "TYPE_CHECKING"
        for node in ast.walk(test)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only and not for_types:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "hbench":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("hbench."))


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_hbench_holds_its_wings_and_nothing_else():
    found = {path.name for path in (ROOT / "hbench").iterdir() if path.name != "__pycache__"}
    assert found == {"__init__.py", "__main__.py", "py.typed", *WINGS}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_its_wing_and_those_before_it(path):
    own = path.relative_to(ROOT / "hbench").parts
    if len(own) == 1:
        return
    for imported in imported_by(ast.parse(path.read_text(encoding="utf-8"))):
        name = imported.split(".")[1]
        wing = hbench.HOME.get(name, imported).split(".")[
            1
        ]  # a public name lives in its wing, also by the front door
        if wing in WINGS:
            assert WINGS.index(wing) <= WINGS.index(own[0]), f"{path} imports {imported}"


def test_no_modules_import_each_other_in_a_circle():
    sources = {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
    arrows = {}
    for name, tree in sources.items():
        found = {
            each if each in sources else each.rpartition(".")[0]
            for each in imported_by(tree, for_types=True)
        }
        arrows[name] = {
            each
            for each in found
            if each in sources and each != name and not name.startswith(f"{each}.")
        }
    # CycleError names the modules of a circle
    ordered = list(TopologicalSorter(arrows).static_order())
    assert sorted(ordered) == sorted(sources)
    place = {name: number for number, name in enumerate(ordered)}
    assert all(place[imported] < place[name] for name, own in arrows.items() for imported in own)


def room_of(name):
    """The wing of a module, and the package or module of it that lies directly in the wing."""
    return tuple(name.split(".")[1:3])


def test_the_rooms_of_a_wing_import_each_other_in_one_direction():
    sources = {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
    arrows = set()
    for name, tree in sources.items():
        for each in imported_by(tree):
            imported = each if each in sources else each.rpartition(".")[0]
            arrows.add((room_of(name), room_of(imported)))
    inside = {(one, other) for one, other in arrows if one != other and one[:1] == other[:1]}
    assert not {(one, other) for one, other in inside if (other, one) in inside}


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in [*MODULES, *PIPELINES]}), ids=str
)
def test_a_floor_has_at_most_twelve_entries(folder):
    if str(folder.relative_to(ROOT)).removeprefix("hbench/") in {"hbench", *SHELVES}:
        return  # the wings are listed above
    entries = {
        path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert len(entries - {folder / "__init__.py"}) <= 12, sorted(path.name for path in entries)


def test_hbench_never_imports_the_pipelines_or_the_studies():
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = (
                    [node.module or ""]
                    if isinstance(node, ast.ImportFrom)
                    else [alias.name for alias in node.names]
                )
                tops = {name.split(".")[0] for name in names}
                assert not any(top.startswith("hbench_") or top == "studies" for top in tops), path


@pytest.mark.parametrize(
    "path", [*MODULES, *PIPELINES], ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_module_and_its_functions_stay_small(path):
    text = path.read_text()
    lines = len(text.splitlines()) - lines_of_docstrings(ast.parse(text))
    assert lines <= 450, f"{path} has {lines} lines beside docstrings: is it still one idea?"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = lines_of_code(node, text.splitlines())
            assert lines <= 40 or is_command(node), f"{path}: {node.name} has {lines} lines of code"
            positional = sum(argument.arg not in ("self", "cls") for argument in node.args.args)
            assert positional <= 5 or is_command(node) or node.name == "forward", (
                f"{path}: {node.name} takes {positional} positional arguments"
            )


def lines_of_docstrings(tree):
    """The lines of all docstrings of a module."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [node for node in ast.walk(tree) if isinstance(node, documented)]
    found = [node.body[0] for node in nodes if ast.get_docstring(node) is not None]
    return sum(statement.end_lineno - statement.lineno + 1 for statement in found)


def lines_of_code(function, lines):
    """The lines of a function's body without its docstring, comments, and what sets paragraphs."""
    has_docstring = ast.get_docstring(function) is not None
    statements = function.body[1:] if has_docstring else function.body
    if not statements:
        return 0
    body = lines[statements[0].lineno - 1 : function.end_lineno]
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in body)


def is_command(node):
    """A click command's arguments are its options: they are counted by its help."""
    return any("command" in ast.dump(decorator) for decorator in node.decorator_list)


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in [*MODULES, *PIPELINES]}), ids=str
)
def test_a_folder_of_modules_is_a_package_and_is_installed(folder):
    assert (folder / "__init__.py").exists() or folder == ROOT / "pipelines"


def test_no_class_name_stands_for_two_things():
    homes = defaultdict(set)
    for path in [*MODULES, *PIPELINES]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes[node.name].add(str(path.relative_to(ROOT)))
    assert not {name: sorted(paths) for name, paths in homes.items() if len(paths) > 1}


HEAVY = {"torch", "sklearn", "numba", "faiss", "matplotlib", "pandas", "scipy.stats", "networkx"}
READING = (
    "from pathlib import Path; from hbench.datasets import manifest; "
    "manifest.read(Path('zoo.parquet'))"
)
SCORING = """
import numpy as np
from hbench.evaluation.arrays import score
score(np.random.default_rng(0).normal(size=(60, 8)), np.arange(60)[:, None] // np.array([20, 4]))
"""


@pytest.mark.parametrize(
    ("text", "unneeded"),
    [
        ("import hbench", {*HEAVY, "numpy", "click"}),
        (
            "import sys, hbench.cli; sys.argv = ['hbench', '--help']\ntry: "
            "hbench.cli.main()\nfinally: pass",
            HEAVY,
        ),
        (
            "import hbench.cli.evaluate, hbench.datasets, hbench.evaluation.evaluate",
            HEAVY - {"numba"} | {"requests"},
        ),
        ("import hbench.look.plots, hbench.cli.plot", {"matplotlib", "sklearn", "torch", "pandas"}),
        (READING, {"pandas"}),
        (SCORING, {"numba", "pandas"}),  # a small test is valued without compiled code
    ],
)
def test_no_library_is_loaded_that_is_not_needed(zoo_folder, text, unneeded):
    code = f"import atexit, sys\natexit.register(lambda: print(*sys.modules))\n{text}"
    assert not set(python(code, folder=zoo_folder).split()) & unneeded


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


@pytest.mark.parametrize(("loaded", "frozen"), [("json", True), ("torch", False)])
def test_objects_are_freed_at_the_end_where_torch_was_loaded(loaded, frozen):
    """Or its extensions list them as leaks on stderr."""
    code = (
        f"import gc, {loaded}, hbench.__main__ as m; m.skip_final_gc(); "
        "print(gc.get_freeze_count() > 0)"
    )
    assert python(code).strip() == str(frozen)
