"""Who learns what from a run's output."""
