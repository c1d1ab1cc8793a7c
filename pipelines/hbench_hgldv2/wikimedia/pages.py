"""A page: a Commons category as the API knows it, and what happened to the title that was asked for.

>>> title_of("http://commons.wikimedia.org/wiki/Category:Nago-ji_(Tateyama,_Chiba)")
'Category:Nago-ji (Tateyama, Chiba)'
>>> soft_redirect("{{Category redirect|reason=x|1=Old Bridge, Mostar}}")
'Category:Old Bridge, Mostar'
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import mwparserfromhell

from hbench.core.errors import DataError, SourceError

WIKI = "commons.wikimedia.org/wiki/"
MOST_HOPS = 5
REDIRECT_TEMPLATES = (
    "category redirect",
    "seecat",
    "see cat",
    "categoryredirect",
    "catredirect",
    "cat redirect",
    "catredir",
    "redirect category",
    "cat-red",
    "redirect cat",
    "cat-redirect",
    "monotypic taxon category redirect",
    "synonym taxon category redirect",
    "invalid taxon category redirect",
)


class Page(NamedTuple):
    """What a requested title is: "found", "redirected", "missing", "invalid" or "no_item".

    `title` is the page's own, `item` its Wikidata item, `via` how it was reached: sitelink, redirect, soft redirect or
    P373.
    """

    title: str
    status: str
    item: str = ""
    via: str = ""


def title_of(url: str) -> str:
    """The page title in a Commons URL: percent-decoded UTF-8, underscores as spaces, NFC; raises DataError for another
    URL.
    """
    _, found, path = url.partition(WIKI)
    if not found or not path:
        raise DataError("this is no Commons page", expected=f"https://{WIKI}Category:…", found=url)
    return unicodedata.normalize("NFC", unquote(path, errors="strict").replace("_", " ").strip())


def pages_of(answers: Iterable[Mapping[str, Any]], requested: Sequence[str]) -> dict[str, Page]:
    """The page of each requested title, from the answers (with continuations) to one `prop=pageprops` query.

    A title is followed by name through `normalized` and `redirects`, never by position: pages come in their own order,
    and two titles may be one page. Format versions 1 and 2 are read. Raises SourceError when a title is in no answer.
    """
    renamed: dict[str, str] = {}
    redirected: dict[str, str] = {}
    pages: dict[str, dict[str, Any]] = {}
    for answer in answers:
        query = answer.get("query", {})
        for entry in query.get("normalized", ()):
            renamed[unquote(entry["from"]) if entry.get("fromencoded") else entry["from"]] = entry["to"]
        for entry in query.get("redirects", ()):
            if "tointerwiki" in entry:  # the page leads to another wiki: it is there, and has no item of its own
                pages.setdefault(entry["from"], {})
            else:
                redirected[entry["from"]] = entry["to"]
        for entry in query.get("interwiki", ()):
            pages[entry["title"]] = {"invalid": True}
        for page in _listed(query.get("pages", ())):
            _merge(pages.setdefault(page["title"], {}), page)
    return {title: _page(title, renamed, redirected, pages) for title in requested}


def soft_redirect(wikitext: str) -> str | None:
    """The title a category-redirect template points to, which `redirects=1` does not follow; None without one.

    What is in comments and in <nowiki> is no template.
    """
    for template in mwparserfromhell.parse(wikitext).filter_templates():
        if _plain(template.name).removeprefix("template:") in REDIRECT_TEMPLATES and template.has("1"):
            target = str(template.get("1").value.strip_code()).replace("_", " ").strip().lstrip(":").strip()
            name = re.sub(r"(?i)^category\s*:\s*", "", target)
            return f"Category:{name}" if name else None
    return None


def _plain(name: Any) -> str:
    """The name of a template as it is compared: without case, with single spaces."""
    return " ".join(str(name).replace("_", " ").split()).casefold().replace("template: ", "template:")


def wikitexts_of(answers: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Page title -> wikitext, from the answers to one `prop=revisions&rvprop=content&rvslots=main` query."""
    texts: dict[str, str] = {}
    for answer in answers:
        for page in _listed(answer.get("query", {}).get("pages", ())):
            for revision in page.get("revisions", ()):
                main = revision.get("slots", {}).get("main", revision)
                texts[page["title"]] = main.get("content", main.get("*", ""))
    return texts


def _page(
    title: str, renamed: Mapping[str, str], redirected: Mapping[str, str], pages: Mapping[str, Mapping[str, Any]]
) -> Page:
    final = renamed.get(title, title)
    seen = {final}
    while final in redirected and redirected[final] not in seen:
        final = redirected[final]
        seen.add(final)
    page = pages.get(final)
    if page is None:
        raise SourceError(
            f"the API did not answer for {title!r}",
            expected="every requested title in the answer",
            found=f"no page {final!r}",
        )
    if "invalid" in page:
        return Page(final, "invalid")
    if "missing" in page:
        return Page(final, "missing")
    item = page.get("pageprops", {}).get("wikibase_item", "")
    if not item:
        return Page(final, "no_item")
    return Page(final, "redirected", item, "redirect") if len(seen) > 1 else Page(final, "found", item, "sitelink")


def _listed(pages: Any) -> Iterable[dict[str, Any]]:
    """Version 2 lists the pages, version 1 maps page ids to them."""
    return pages.values() if isinstance(pages, Mapping) else pages


def _merge(into: dict[str, Any], page: Mapping[str, Any]) -> None:
    """Add what a continuation tells about a page to what is known of it."""
    for key, value in page.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            into[key] |= value
        else:
            into[key] = value
