"""stub"""


def usable(scores):
    return False


sort = exact_sums = step_sums = None
