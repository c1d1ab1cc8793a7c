"""Says which package to install when an optional module is missing, one that only some verbs need.

>>> print(missing(ModuleNotFoundError("No module named 'distributed'", name="distributed")))
distributed is not installed
  next:     pip install distributed (in a clone of hbench: pip install '.[cluster]')
"""

from hbench.core.errors import UsageError

MODULES = {
    "look": ("matplotlib", "jinja2", "pandas", "sklearn", "scipy"),
    "train": ("torch", "torchvision", "timm", "pytorch_metric_learning", "tensorboard"),
    "export": ("onnx", "onnxruntime", "onnxscript"),
    "pipelines": ("open_clip", "transformers", "fastcluster", "faiss", "yaml"),
    "detection": ("torchmetrics", "pycocotools", "defusedxml"),
    "cluster": ("dask", "distributed"),
}
PACKAGES = {  # {module: package}, where their names differ
    "sklearn": "scikit-learn",
    "pytorch_metric_learning": "pytorch-metric-learning",
    "open_clip": "open_clip_torch",
    "faiss": "faiss-cpu",
    "yaml": "pyyaml",
    "dask": "distributed",
}


def missing(error: ModuleNotFoundError) -> UsageError | None:
    """Return the error to raise for a missing module of one of hbench's extras. None for any other
    module, whose absence is a bug, so that the original error should be seen.

    The advice names the package itself rather than `hbench[…]`: hbench is not on the package index,
    and somebody else's package of that name would be installed.
    """
    module = (error.name or "").split(".")[0]
    # MODULES lists the modules of each extra, PACKAGES the packages with another name
    extra = next((extra for extra, modules in MODULES.items() if module in modules), None)
    if extra is None:
        return None
    package = PACKAGES.get(module, module)
    return UsageError(
        f"{module} is not installed",
        fix=f"pip install {package} (in a clone of hbench: pip install '.[{extra}]')",
    )
