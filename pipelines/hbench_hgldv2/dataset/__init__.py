"""From a curated taxonomy to the H-GLDv2 dataset: assignment, assembly and its card."""
