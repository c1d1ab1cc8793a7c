"""Extends mkdocs for the documentation site: pages made from the code, and formulas as MathML.

The cards of the datasets, the losses, the policies, the verbs and the tables of the studies are
written from what hbench knows, so that they cannot disagree with it. Formulas (blocks of the kind
`math`) become MathML, which browsers draw by themselves: a page from the disk loads nothing.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from latex2mathml.converter import convert

from hbench.cli import CONTEXT, VERBS, group
from hbench.datasets import card, specs
from hbench.datasets.metadata.publications import publication_of
from hbench.losses import loss_entry, losses
from hbench.losses.entry import REQUIRED
from hbench.train.recipes import overview
from hbench.tree.policies import policies
from studies import study
from studies.page import kept_of, markdown
from studies.values import read

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

FORMULAS = Path(__file__).parent / "formulas.toml"
EXAMPLES = Path(__file__).parent.parent.parent / "examples"
TITLES = {
    "accelerate_loop": "Hugging Face Accelerate, a whole loop",
    "ask_by_name": "Names as queries, by timm and transformers",
    "fiftyone_mistakes": "FiftyOne",
    "huggingface_dataset": "Hugging Face datasets",
    "imagenet_wordnet": "Folders as ImageNet's, on WordNet's pairs",
    "lightning_loop": "Lightning, a whole loop",
    "lightning_validation": "Lightning, validation alone",
    "new_dataset": "A dataset of another package",
    "pml_accuracy": "pytorch-metric-learning",
    "timm_embedding": "timm",
    "torch_loop": "A PyTorch loop of your own",
    "torchmetrics_hap": "torchmetrics",
    "trec_run": "TREC tools",
    "without_pictures": "Texts, by scikit-learn",
}
MADE = (
    "commands.md",
    "dataset-cards.md",
    "label-policies.md",
    "libraries.md",
    "loss-catalogue.md",
    "recipe-setups.md",
    "study-tables.md",
)  # by the functions below
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
MATH = re.compile(r"^```math\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code."""
    from mkdocs.structure.files import File

    texts = (
        commands(),
        dataset_cards(),
        label_policies(),
        libraries(),
        loss_catalogue(),
        recipe_setups(),
        study_tables(),
    )
    for name, text in zip(MADE, texts, strict=True):
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Draw the formulas of a page; after each table of names of `api.md`, show each in full."""
    if page.file.src_uri == "api.md":
        return TABLE.sub(lambda found: found[0] + _in_full_by_name(found[0]), markdown)
    return MATH.sub(lambda found: drawn(found[1]), markdown)


def _in_full_by_name(table: str) -> str:
    return "".join(
        f"\n::: {name}\n" for name in re.findall(r"^\| `(hbench[\w.]+)`", table, re.MULTILINE)
    )


def on_post_page(output: str, **_: Any) -> str:
    """Take our own stand-in for workers, not the one that the theme loads from elsewhere."""
    return output.replace("https://unpkg.com/iframe-worker/shim", "site/worker.js")


def on_post_template(output: str, **_: Any) -> str:
    """The same for 404.html, which is not made of a page."""
    return on_post_page(output)


def drawn(latex: str) -> str:
    """A formula on a line of its own, as MathML."""
    return f'<div class="formula">{convert(latex.strip(), display="block")}</div>\n'


def dataset_cards() -> str:
    """The card of every benchmark."""
    parts = [
        "# Dataset cards",
        "This page shows what `hbench datasets NAME` says of every benchmark before it is on the "
        "disk.",
    ]
    for name in specs:
        spec = specs[name]
        facts = card(spec)
        rows = [
            ("levels", " / ".join(spec.levels)),
            ("metrics", ", ".join(spec.protocol.all_metrics)),
        ]
        rows += [("similarity", spec.protocol.similarity), ("version", spec.version)]
        rows += [
            (each, _cell(facts[each]))
            for each in ("size", "licence", "homepage", "citation")
            if facts.get(each)
        ]
        rows += [
            (f"{split} has", _counts(counts)) for split, counts in spec.counts.items() if counts
        ]
        rows += [("known defects", _cell(facts["defects"]))] if facts.get("defects") else []
        parts.append(f"## {name}\n\n{facts['title']}\n\n| | |\n|---|---|")
        parts[-1] += "".join(f"\n| {what} | {text} |" for what, text in rows)
        blocks = {"To fetch by hand:": spec.manual, "The raw folder:": spec.layout}
        parts[-1] += "".join(
            f"\n\n{title}\n\n```text\n{text}\n```" for title, text in blocks.items() if text
        )
    return "\n\n".join(parts) + "\n"


def label_policies() -> str:
    """Every policy that mends labels: what it mends, and what it does."""
    rows = [
        f"| `{name}` | {', '.join(policies[name].mends)} | "
        f"{_first_paragraph(policies[name].new_rows.__doc__)} |"
        for name in policies
    ]
    return (
        "# Label policies\n\nEvery rule by which `--policy NAME` mends labels that form no tree. "
        "`hbench tree validate SOURCE` "
        "names the problems of your labels and says what each policy would do; several may be "
        "given.\n\n"
        "| policy | mends | what it does |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def _first_paragraph(text: str | None) -> str:
    assert text is not None
    return _cell(" ".join(text.split("\n\n")[0].split()))


def _counts(counts: Any) -> str:
    return ", ".join(f"{number:,} {what}" for what, number in counts.items())


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else "<br>".join(map(str, value))
    text = text.replace("|", "\\|").replace("\n", "<br>")
    return f"<{text}>" if text.startswith("http") and " " not in text else text


def loss_catalogue() -> str:
    """Every loss: its formula, its paper, its parameters."""
    formulas = tomllib.loads(FORMULAS.read_text(encoding="utf-8"))
    parts = [
        "# All losses",
        "This page has the formula of every loss, with its paper and parameters. Scores are s, "
        "ranks are within Ω, positives "
        "are Ω⁺; a rank with σ or S has that step in place of the exact one ([the "
        "steps](losses.md#what-they-do-to-a-rank)).",
    ]
    for name in losses:
        entry = loss_entry(name)
        own = [
            f"`{key}`" + ("" if value is REQUIRED else f" {value}")
            for key, value in entry.parameters.items()
        ]
        parts.append(f"## {name}\n\n{drawn(formulas[name])}\n{entry.paper}{_in_full(entry.paper)}.")
        parts.append(f"Parameters: {', '.join(own) or 'none'}.")
    return "\n\n".join(parts) + "\n"


def recipe_setups() -> str:
    """What every setup of a paper trains with, and whose its values are."""
    return (
        "# The setups of the papers\n\nThis page shows what every setup trains with. The values "
        "are those of the papers and "
        "of the released configurations (HAPPIER 5af91b3, SupRank d3d0e3c, ROADMAP fed37d7); "
        "[where the two differ](recipes.md#papers-and-released-code).\n\n" + overview.markdown()
    )


def _in_full(citation: str) -> str:
    """The title of the paper, and where it can be read."""
    paper = publication_of(citation)
    if paper is None:
        return ""
    return f": *{paper.title}*" + (
        f" ([arXiv {paper.arxiv}](https://arxiv.org/abs/{paper.arxiv}))" if paper.arxiv else ""
    )


def study_tables() -> str:
    """What `python -m studies show` prints of every study, from the values that ship with it."""
    parts = [
        "# Tables of the studies",
        "This page has the claims, trials and scores of every [study](studies.md), as `python -m "
        "studies show` prints them.",
    ]
    for name in study.names():
        text = markdown(study.read(name), *read(kept_of(f"{name}-study")))
        below = re.sub("^#", "##", text.split("\n", 1)[1], flags=re.MULTILINE)
        parts.append(f"## {name}\n{below}".rstrip())
    return "\n\n".join(parts) + "\n"


def libraries() -> str:
    """The files of examples/, under what they open with."""
    parts = [
        "# Inside other libraries",
        "This page shows hbench inside other libraries. Each example is a file of `examples/` that "
        "runs as it is, and a test.",
    ]
    for path in sorted(EXAMPLES.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        _, opening, code = text.split('"""', 2)
        said, _, then = opening.strip().partition("\n\nThen: ")
        after = f"\n\nThen:\n\n```python\n{then}\n```" if then else ""
        parts.append(
            f"## {TITLES[path.stem]}\n\n{said}\n\n```python "
            f'title="{path.name}"\n{code.strip()}\n```{after}'
        )
    return "\n\n".join(parts) + "\n"


def commands() -> str:
    """The help of every verb."""
    parts = ["# Commands", "This page shows `hbench VERB --help` of every verb."]
    with click.Context(group, info_name="hbench", **CONTEXT) as top:
        for verb in VERBS:
            command = group.get_command(top, verb)
            if command is not None:
                parts.append(f"## {verb}\n\n{_help(command, top, verb)}")
    return "\n\n".join(parts) + "\n"


def _help(command: click.Command, above: click.Context, name: str) -> str:
    context = click.Context(command, info_name=name, parent=above)
    parts = [f"```text\n{command.get_help(context)}\n```"]
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            assert below is not None
            parts.append(f"### {name} {each}\n\n{_help(below, context, each)}")
    return "\n\n".join(parts)
