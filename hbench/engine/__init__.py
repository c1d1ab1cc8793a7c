"""The exact ranking engine. It computes every query's metrics against the whole gallery, at about
the cost of the matrix product.
"""
