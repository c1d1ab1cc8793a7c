"""The documentation site: it builds without a warning, its links lead somewhere, and it works from
the disk.
"""

import re
import subprocess
import tomllib
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

from hbench.losses import losses
from tests.command_line import process

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    words = ("-m", "mkdocs", "build", "--strict", "--site-dir", folder)
    assert "WARNING" not in process(*words, folder=ROOT, NO_MKDOCS_2_WARNING="1").stderr
    return folder


def test_every_link_and_picture_of_the_site_is_there(site):
    for page in site.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        for target in map(unescape, re.findall(r'(?:href|src)="([^"]+)"', text)):
            if re.match(r"[a-z]+:", target) or page.name == "404.html":
                continue
            path, _, anchor = target.partition("#")
            file = site / unquote(path) if path else page
            assert file.exists(), f"{page.name}: {target}"
            if anchor and file.suffix == ".html":
                assert f'id="{unquote(anchor)}"' in file.read_text(encoding="utf-8"), (
                    f"{page.name}: {target}"
                )


@pytest.mark.parametrize("installed", [True, False])
def test_make_site_installs_what_it_needs_where_it_is_missing(tmp_path, installed):
    """With a Python that only notes what it is asked for, and lacks what `import` names until pip
    was called.
    """
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n[ "$1" != -c ] || exit '
        f"{0 if installed else 1}\n"
    )
    python.chmod(0o755)
    subprocess.run(
        ["make", "-C", ROOT, "site", f"PYTHON={python}"], check=True, capture_output=True
    )
    asked = (tmp_path / "asked").read_text().splitlines()
    assert "mkdocs" in asked[0]
    assert asked[1:-1] == ([] if installed else ["-m pip install -q -e .[all,docs]"])
    assert asked[-1] == "-m mkdocs build --strict"


def test_every_loss_has_its_formula():
    assert set(
        tomllib.loads((ROOT / "docs/site/formulas.toml").read_text(encoding="utf-8"))
    ) == set(losses)


def test_the_site_works_from_the_disk_alone(site, browser):
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    wrong = []
    page.on(
        "request",
        lambda request: request.url.startswith(("file:", "data:")) or wrong.append(request.url),
    )
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(f"{(site / 'loss-catalogue.html').as_uri()}#sup_hap")
    assert page.locator("#sup_hap").is_visible()
    assert page.locator("math mfrac").count() > 10
    page.locator("input.md-search__input").click()
    page.locator("input.md-search__input").press_sequentially("inversion")
    page.locator(".md-search-result__link[href*='troubleshooting.html']").first.wait_for(
        state="attached"
    )
    page.close()
    assert not wrong
