"""Blinder trained where the data stays: every person is a client (algorithm 1), over Flower."""

import os

# No usage statistics leave this machine; Flower and Ray look at these when they are imported.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
