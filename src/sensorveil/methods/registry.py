"""All methods by name."""

from __future__ import annotations

from sensorveil.errors import refuse_unknown
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
from sensorveil.methods.resample import Resample
from sensorveil.methods.seal import Seal

registry: dict[str, type[Obfuscator]] = {
    made.name: made
    for made in (
        NoObfuscation,
        Noise,
        Downsample,
        Resample,
        GeneralVAE,
        AttributeVAE,
        AttributeCAE,
        AttributeCVAE,
        AAE,
        ObscureNet,
        ObscureNetPipeline,
        PrivDiffuser,
        Cloak,
        Mass,
        CsiGenerator,
        CsiVae,
        Blinder,
        Seal,
    )
}
"""Every method's class by its name; a method of your own joins by `registry[name] = Class`."""


def method(name: str) -> type[Obfuscator]:
    """The class of a method, or the refusal that lists the known ones.

    >>> method("resample").summary
    'a random training window of the class that was read'
    """
    if name not in registry:
        raise refuse_unknown("method", name, list(registry))
    return registry[name]
