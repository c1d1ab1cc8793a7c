"""Defines the losses that are not rank losses: pairs, proxies, black-box differentiation, soft
bins, calibration.
"""
