"""sensorveil hides what sensor data says about a person and keeps what an application needs."""

from sensorveil.data import load
from sensorveil.methods.aae import AAE
from sensorveil.methods.autoencoder import AttributeCAE, AttributeCVAE, AttributeVAE, GeneralVAE
from sensorveil.methods.base import Obfuscator
from sensorveil.methods.blinder import Blinder
from sensorveil.methods.cloak import Cloak
from sensorveil.methods.csi import CsiGenerator
from sensorveil.methods.csi_vae import CsiVae
from sensorveil.methods.downsample import Downsample
from sensorveil.methods.mass import Mass
from sensorveil.methods.noise import Noise
from sensorveil.methods.none import NoObfuscation
from sensorveil.methods.obscurenet import ObscureNet, ObscureNetPipeline
from sensorveil.methods.privdiffuser import PrivDiffuser
from sensorveil.methods.registry import registry
from sensorveil.methods.resample import Resample
from sensorveil.methods.run import load_run, save_run
from sensorveil.methods.seal import Seal
from sensorveil.version import __version__

__all__ = [
    "AAE",
    "AttributeCAE",
    "AttributeCVAE",
    "AttributeVAE",
    "Blinder",
    "Cloak",
    "CsiGenerator",
    "CsiVae",
    "Downsample",
    "GeneralVAE",
    "Mass",
    "NoObfuscation",
    "Noise",
    "Obfuscator",
    "ObscureNet",
    "ObscureNetPipeline",
    "PrivDiffuser",
    "Resample",
    "Seal",
    "__version__",
    "load",
    "load_run",
    "registry",
    "save_run",
]
