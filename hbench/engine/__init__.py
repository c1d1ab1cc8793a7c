"""The exact ranking engine: it values every query against the whole gallery, at about the cost of
the matrix product.
"""
