"""stub"""
def usable(scores): return False
before=step_sums=None
