"""The values of queries: how metrics follow from sums over ranks, and the blocks that compute them."""
