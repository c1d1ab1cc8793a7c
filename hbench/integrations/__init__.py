"""Adapters to other libraries, each a module of the library's name that is imported only when it is asked for.

`hbench.integrations.torchmetrics`, `hbench.integrations.pytorch_metric_learning`, `hbench.integrations.lightning`.
"""
