"""Trains object detectors with a rank loss in place of cross-entropy, and scores them by average precision of boxes
(RaMBO §5.2); needs the extra `detection`."""
