"""Names the extra to install when a module is missing that only some verbs need.

>>> print(missing(ModuleNotFoundError("No module named 'torch'", name="torch")))
torch is not installed
  next:     pip install 'hbench[train]'
"""

from __future__ import annotations

from hbench.core.errors import UsageError

MODULES = {
    "look": ("matplotlib", "jinja2", "pandas", "sklearn", "scipy"),
    "train": ("torch", "torchvision", "timm", "pytorch_metric_learning", "tensorboard"),
    "pipelines": ("open_clip", "transformers", "fastcluster", "faiss", "yaml"),
    "detection": ("torchmetrics", "pycocotools", "defusedxml"),
    "cluster": ("dask", "distributed"),
}


def missing(error: ModuleNotFoundError) -> UsageError | None:
    """The refusal for a module of an extra; None for any other module, whose absence is a defect to be seen."""
    module = (error.name or "").split(".")[0]
    extra = next((extra for extra, modules in MODULES.items() if module in modules), None)
    return UsageError(f"{module} is not installed", fix=f"pip install 'hbench[{extra}]'") if extra else None
