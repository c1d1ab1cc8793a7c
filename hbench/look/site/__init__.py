"""Makes static pages of leaderboards, which can be sorted, filtered, compared and downloaded."""
