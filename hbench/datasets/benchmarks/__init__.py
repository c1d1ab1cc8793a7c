"""Describes the benchmarks that ship with hbench, one file each: its SPECs, and a function `build(raw)` that returns the
manifests. `hbench.datasets` registers every Spec that stands in a module of this folder."""
