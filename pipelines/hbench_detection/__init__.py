"""Trains object detectors with a rank loss in place of cross-entropy, and scores them by the
average precision of boxes (RaMBO §5.2). It needs the extra `detection`."""
