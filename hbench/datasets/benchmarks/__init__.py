"""Describes the benchmarks that hbench ships, one file each: a SPEC, and `build(raw)`, which reads
the splits from raw files. `hbench.datasets` registers every Spec in the modules of this folder."""
