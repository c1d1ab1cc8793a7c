"""Losses that are not a rank loss of the table: pairs, proxies, black-box differentiation, soft bins, calibration."""
