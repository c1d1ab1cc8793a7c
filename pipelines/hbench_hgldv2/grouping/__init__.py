"""From labels to groups: text encoders, clustering, constraints, quality and suggestions."""
