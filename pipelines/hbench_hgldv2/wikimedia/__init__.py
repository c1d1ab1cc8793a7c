"""Fetches facts from Wikimedia within its rules: from the APIs, the query service or dumps, with a
permanent cache of the answers."""
