"""Losses that are not a rank loss of the table: pairs, proxies, blackbox differentiation, soft bins, calibration."""
