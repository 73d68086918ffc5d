"""Recordings in, windows out."""

from sensorveil.data.catalog import dataset, folds, list_datasets, load, register_dataset
from sensorveil.data.dataset import Dataset
from sensorveil.data.protocol import Card, Protocol
from sensorveil.data.recordings import Recording, Recordings
from sensorveil.data.splits import Split
from sensorveil.data.windows import UNKNOWN, Scaling, Windows

__all__ = [
    "UNKNOWN",
    "Card",
    "Dataset",
    "Protocol",
    "Recording",
    "Recordings",
    "Scaling",
    "Split",
    "Windows",
    "dataset",
    "folds",
    "list_datasets",
    "load",
    "register_dataset",
]
