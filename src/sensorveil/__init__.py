"""sensorveil hides what sensor data says about a person and keeps what an application needs."""

from sensorveil.data import load
from sensorveil.version import __version__

__all__ = ["__version__", "load"]
