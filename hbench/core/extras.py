"""Names the packages to install when a module is missing that only some verbs need.

>>> print(missing(ModuleNotFoundError("No module named 'distributed'", name="distributed")))
distributed is not installed
  next:     pip install distributed (in a clone of hbench: pip install '.[cluster]')
"""

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires

from hbench.core.errors import UsageError

MODULES = {
    "look": ("matplotlib", "jinja2", "pandas", "sklearn", "scipy"),
    "train": ("torch", "torchvision", "timm", "pytorch_metric_learning", "tensorboard"),
    "pipelines": ("open_clip", "transformers", "fastcluster", "faiss", "yaml"),
    "detection": ("torchmetrics", "pycocotools", "defusedxml"),
    "cluster": ("dask", "distributed"),
}


def missing(error: ModuleNotFoundError) -> UsageError | None:
    """The refusal for a module of an extra; None for any other module, whose absence is a defect to
    be seen.

    It names the packages themselves: hbench is not on the package index, so `pip install hbench[…]`
    would fetch another's.
    """
    module = (error.name or "").split(".")[0]
    extra = next((extra for extra, modules in MODULES.items() if module in modules), None)
    if extra is None:
        return None
    try:
        packages = " ".join(_packages(extra))
    except PackageNotFoundError:  # hbench runs from a folder, without having been installed
        packages = module
    return UsageError(
        f"{module} is not installed",
        fix=f"pip install {packages} (in a clone of hbench: pip install '.[{extra}]')",
    )


def _packages(extra: str) -> Iterator[str]:
    """The names of the packages of an extra, those of the extras that it includes among them."""
    for requirement in requires("hbench") or ():
        package, _, condition = requirement.partition(";")
        if f'extra == "{extra}"' in condition.replace("'", '"'):
            included = re.fullmatch(r"hbench\[(.+)\]", package.strip())
            if included:
                for name in included[1].split(","):
                    yield from _packages(name)
            else:
                yield re.split(r"[^\w.-]", package.strip())[0]
