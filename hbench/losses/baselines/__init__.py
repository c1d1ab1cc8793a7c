"""Defines the losses other than rank losses: those of pairs, proxies, black-box differentiation,
soft bins, and calibration.
"""
