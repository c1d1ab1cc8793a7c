"""Makes the leaderboards as static pages: sort, filter, compare, and take away."""
