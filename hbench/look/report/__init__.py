"""Makes the pages of evaluations: one folder of static files that a browser opens without a server."""
