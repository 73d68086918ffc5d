"""Scores with intervals: pure functions that methods and audit both use."""
