"""Writes a folder of pages under a temporary name, and renames it when it is complete. Other files
of an existing folder are kept.

The pages are in the folder itself; `assets/` holds styles and scripts, `data/` the data that
scripts load on demand. Nothing is loaded from elsewhere, and a policy in every page forbids it.
Data files are scripts, too, since a page opened from a disk may not fetch other files: each script
passes one named value to the page as JSON, without characters that could end the script early.

>>> script("items-0", ["</script>"])
'hbench.put("items-0",["\\\\u003c/script>"]);\\n'
"""

import glob
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from hbench.core.errors import UsageError
from hbench.core.text import percent
from hbench.look.palette import color_of, text_color_on
from hbench.look.wording import coded, plain, tail, telling
from hbench.metrics.names import factor_of, lower_is_better
from hbench.records.shown import beside, interval, shown, shown_difference

LEFTOVERS = ("part", "old")
SHARED = "hbench.look.pages"
ESCAPED = {"<": "\\u003c", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def refuse_folder(folder: Path, kind: str) -> None:
    """Raise UsageError for a folder that is not empty and does not contain pages of this kind."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / mark_of(kind)).exists():
        expected = f"a new folder, or one that holds an earlier {kind}"
        raise UsageError(f"{folder} holds other files", expected=expected, fix="choose another -o")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", expected="the path of a folder")


def mark_of(kind: str) -> str:
    """Return the name of the file that marks folders written by hbench. Only folders with this mark
    are replaced."""
    return f".hbench-{kind}"


@contextmanager
def replacing_folder(folder: Path, kind: str) -> Iterator[Path]:
    """Yield a new folder that replaces `folder` when the block succeeds, and is removed otherwise.

    `kind` is the type of the pages, such as "report". Files that hbench did not write are kept.
    Raises UsageError where such a file has the name of a new one, and for a folder that has files
    but no pages of this kind.
    """
    refuse_folder(folder, kind)
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    _clear_leftovers(folder)
    # the number of the process tells a later run whether somebody still writes these folders
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    temporary.mkdir()

    try:
        yield temporary
        written = _files_of(temporary)
        if folder.exists():
            _take_along(folder, temporary, kind)
        # the mark lists hbench's own files for a later run
        text = "\n".join([f"made by hbench {kind}; these files are replaced:", *written])
        (temporary / mark_of(kind)).write_text(text + "\n", encoding="utf-8")
        if folder.exists():
            folder.replace(old)  # a folder that is not empty cannot be replaced, so move it away
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _files_of(folder: Path) -> list[str]:
    """The files below a folder, by their relative paths."""
    found = (each for each in folder.rglob("*") if each.is_symlink() or not each.is_dir())
    return sorted(each.relative_to(folder).as_posix() for each in found)


def _take_along(folder: Path, temporary: Path, kind: str) -> None:
    """Copy the files that hbench did not write into the new folder. If the old folder has no list
    of hbench's files, copy every file that is not replaced.

    `kind` is the type of the pages, such as "report"; its mark lists the files that were written.
    Raises UsageError where somebody's file has the name of a new one.
    """
    mark = folder / mark_of(kind)
    # the first line is a heading
    listed = mark.read_text(encoding="utf-8").splitlines()[1:] if mark.exists() else []
    for name in _files_of(folder):
        new = temporary / name
        if name in listed or name == mark.name:  # written by hbench
            continue
        if not listed and new.exists():  # without a list, taken for a file that hbench wrote
            continue
        if new.exists():
            raise UsageError(
                f"{folder / name} is not of hbench, and would be replaced",
                fix="give it another name, or choose another -o",
            )
        new.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / name, new, follow_symlinks=False)


def _clear_leftovers(folder: Path) -> None:
    """Clean up after processes that were killed while they made these pages: their temporary
    folders are removed, and pages that they had moved away are moved back."""
    # the temporary folders beside the pages are called .NAME.PROCESS.KIND: KIND `part` holds new
    # pages, which may be incomplete, `old` the pages that were moved away
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.*"):
        process, _, kind = left.name.removeprefix(f".{folder.name}.").partition(".")
        if kind not in LEFTOVERS or not process.isdecimal() or _is_running(int(process)):
            continue
        if kind == "old" and not folder.exists():
            left.replace(folder)
        else:
            shutil.rmtree(left, ignore_errors=True)


def _is_running(process: int) -> bool:
    """Whether a process with this number is running: signal 0 only checks."""
    if os.name != "posix":
        return True  # other systems have no harmless way to check
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is running, as another user
        return True
    return True


def copy_assets(folder: Path, package: str) -> None:
    """Copy the shared styles and scripts, and those of a package, into a new folder."""
    folder.mkdir()
    for each in (SHARED, package):
        for file in resources.files(each).joinpath("static").iterdir():
            if file.is_file():
                (folder / file.name).write_bytes(file.read_bytes())


def shared_asset(name: str) -> str:
    """Read a shared style or script, for a page that consists of a single file."""
    return resources.files(SHARED).joinpath("static", name).read_text(encoding="utf-8")


def script(name: str, value: Any) -> str:
    """Return a script that passes a JSON value to the page. Raises ValueError for NaN. `name` is a
    fixed name, never text from outside."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escaped in ESCAPED.items():
        text = text.replace(character, escaped)
    return f"hbench.put({json.dumps(name)},{text});\n"


def write_script(folder: Path, name: str, value: Any) -> None:
    """Write the script of a value to the file NAME.js."""
    (folder / f"{name}.js").write_text(script(name, value), encoding="utf-8")


class Pages:
    """Renders the templates of a package and the shared ones, with common variables and filters."""

    def __init__(self, package: str, shared: dict[str, Any]) -> None:
        """`package` is searched for templates before the shared ones. `shared` are the variables of
        every page, by name. A missing variable is an error and does not become a blank."""
        # once if `package` is itself the package of the shared templates
        packages = dict.fromkeys((package, SHARED))
        loaders = [jinja2.PackageLoader(name, "templates") for name in packages]
        loader = jinja2.ChoiceLoader(loaders)
        # StrictUndefined: a missing variable is an error instead of a blank
        self.environment = jinja2.Environment(
            loader=loader, autoescape=True, undefined=jinja2.StrictUndefined
        )
        self.environment.globals |= shared
        self.environment.filters |= {
            "percent": percent,
            "shown": page_value,
            "difference": page_difference,
            "interval": lambda score, metric: interval(metric, score),
            "beside": lambda score, metric: beside(metric, score),
            "exact": exact,
            "lower_is_better": lower_is_better,
            "factor_of": factor_of,
            "headings": headings_of_page,
            "telling": telling,
            "coded": coded,
            "plain": plain,
            "tail": tail,
        }

    def text(self, template: str, **content: Any) -> str:
        """Render a template by name. Texts from outside are escaped."""
        return self.environment.get_template(f"{template}.html.jinja").render(**content) + "\n"

    def write(self, folder: Path, page: str, template: str | None = None, **content: Any) -> None:
        """Render PAGE.html from the template of the same name, or from `template`."""
        (folder / f"{page}.html").write_text(
            self.text(template or page, page=page, **content), encoding="utf-8"
        )


def level_styles(depth: int) -> str:
    """Return the style rules of the levels 0 … depth: their colours, and the colours of text on
    them."""
    colors = [color_of(level, depth) for level in range(depth + 1)]
    pairs = [(color, text_color_on(color)) for color in colors]
    rules = [
        f".level-{level} {{ --level: {own}; --on-level: {on}; }}\n"
        for level, (own, on) in enumerate(pairs)
    ]
    return "".join(rules)


def page_value(value: float | None, metric: str, digits: int = 2) -> str:
    """Return a metric's value as text for people."""
    return shown(metric, value, digits)


def page_difference(difference: float, metric: str, digits: int = 2) -> str:
    """Return a difference of a metric's values as text, with a typographic minus sign.

    >>> page_difference(0.0123, "AP"), page_difference(-0.5, "AP", 1)
    ('+1.23', '−50.0')
    """
    return shown_difference(metric, difference, digits).replace("-", "−")


def headings_of_page(content: str) -> list[tuple[str, str]]:
    """List the (id, text) of the <h2> headings of a page's content, for a table of contents. Small
    print at the end of headings is left out, and so are quiet headings, which have a class.

    >>> quiet = '<h2 id="in-short" class="quiet">In short</h2>'
    >>> headings_of_page(f'<h2 id="scores">Scores &amp; more <small>3</small></h2>{quiet}')
    [('scores', 'Scores &amp; more')]
    """
    found = re.findall(r'<h2 id="([^"]+)">(.*?)</h2>', content, re.DOTALL)
    return [
        (name, re.sub(r"<small.*|<[^>]+>", "", text, flags=re.DOTALL).strip())
        for name, text in found
    ]


def exact(value: float | None) -> str:
    """Return a fraction with all digits, for scripts and tests that read a page."""
    return "" if value is None or np.isnan(value) else repr(float(value))
