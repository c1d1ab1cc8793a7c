"""Studies: families of training runs, compared claim by claim."""
