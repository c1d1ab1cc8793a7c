"""Makes the pages of evaluations: a folder of static files that a browser opens without a
server."""
