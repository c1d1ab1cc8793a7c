"""How far down a name can be trusted: masses on the tree, thresholds whose promise holds."""
