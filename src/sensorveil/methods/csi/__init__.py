"""Wi-Fi CSI generated under differential privacy (Wang, Zhao, Mao and Wang 2024)."""

from sensorveil.methods.csi.class_generator import ClassGenerator, released_for_training
from sensorveil.methods.csi.generator import CsiGenerator
from sensorveil.methods.csi.vae import CsiVae

__all__ = ["ClassGenerator", "CsiGenerator", "CsiVae", "released_for_training"]
