"""Describes the benchmarks that ship with hbench, one file each: a SPEC and a function `build(raw)` that returns its
manifests."""
