"""The values of queries: which sums over ranks give metrics, and the blocks that take them."""
