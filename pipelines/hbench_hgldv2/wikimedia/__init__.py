"""Asks Wikimedia politely: the API, the query service, dumps, a permanent cache, and what every
answer means.
"""
