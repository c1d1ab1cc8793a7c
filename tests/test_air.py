"""Code that a stranger reads once: one thought a line, names for what is in between, paragraphs."""

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LISTED = ["git", "ls-files", "hbench/*.py", "pipelines/*.py", "studies/*.py"]
MOST_NAMES = 18  # parameters and local names of a function
MANY_NAMES = {  # compiled kernels, and functions whose parameters are what a user can choose
    "score", "evaluate", "browse", "embed_names", "rank_rows", "sum_up", "count_tile", "list_sums", "window_sums",
}  # fmt: skip
LOOPS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def modules():
    if not (ROOT / ".git").exists():
        return sorted(
            path
            for top in ("hbench", "pipelines", "studies")
            for path in (ROOT / top).rglob("*.py")
        )
    listed = subprocess.run(LISTED, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in listed.split()]


def test_no_line_of_a_script_or_style_is_longer_than_120():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(
        ["git", "ls-files", "*.js", "*.css"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    own = [line for line in listed.split() if "vendor" not in line]
    assert own
    assert not [
        f"{name}:{number}"
        for name in own
        for number, line in enumerate((ROOT / name).read_text("utf-8").splitlines(), start=1)
        if len(line) > 120
    ]


def is_text_or_list(node):
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_text or isinstance(node, ast.JoinedStr | ast.List)


def is_truth(node):
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "bool"
    return isinstance(node, ast.Compare | ast.BoolOp)


def times_bool(node):
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
        return False
    return any(
        is_text_or_list(a) and is_truth(b)
        for a, b in ((node.left, node.right), (node.right, node.left))
    )


def is_conditional_statement(node):
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.IfExp | ast.BoolOp)
    return isinstance(node, ast.For) and isinstance(node.iter, ast.IfExp)


def is_nested_conditional(node):
    if not isinstance(node, ast.IfExp):
        return False
    parts = (node.body, node.orelse, node.test)
    return any(isinstance(inner, ast.IfExp) for part in parts for inner in ast.walk(part))


def is_nested_loop(node):
    if not isinstance(node, LOOPS):
        return False
    return any(isinstance(inner, LOOPS) and inner is not node for inner in ast.walk(node))


FINDERS = {
    "a text or a list times a truth value: write an if": (times_bool, 0),
    "a conditional as a statement, or picking what a loop runs over": (is_conditional_statement, 0),
    "a conditional inside a conditional": (is_nested_conditional, 2),  # in compiled kernels
    "a comprehension inside a comprehension": (is_nested_loop, 5),
}


@pytest.mark.parametrize("what", FINDERS)
def test_an_expression_is_read_once(what):
    is_found, most = FINDERS[what]
    found = []
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if is_found(node):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert len(found) <= most, found


def names_of(function):
    arguments = function.args
    names = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_a_function_has_no_more_names_than_one_remembers():
    found = []
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if len(names_of(node)) > MOST_NAMES and node.name not in {*MANY_NAMES, "command"}:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert len(found) <= 4, found  # what a verb or an executor holds together


def test_only_literal_tables_are_laid_out_by_hand():
    for path in modules():
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        tables = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.col_offset == 0:
                tables.add(node.end_lineno)
        by_hand = {number for number, line in enumerate(lines, 1) if "# fmt: skip" in line}
        assert by_hand <= tables, f"{path}: {sorted(by_hand - tables)}"
