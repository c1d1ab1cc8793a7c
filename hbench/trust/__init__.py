"""How far down a path of names can be trusted: masses of tree nodes, and thresholds above which a
promised share of answers is right."""
