"""The values of queries: how metrics follow from sums over ranks, and who computes them."""
