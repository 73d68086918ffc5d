"""sensorveil hides what sensor data says about a person and keeps what an application needs.

Names are imported when they are first used, so that `import sensorveil` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sensorveil.version import __version__

if TYPE_CHECKING:
    from sensorveil.audit.given import audit_windows
    from sensorveil.data import load
    from sensorveil.methods.aae import AAE
    from sensorveil.methods.base import Obfuscator
    from sensorveil.methods.baselines import Downsample, Noise, NoObfuscation, Resample
    from sensorveil.methods.blinder import Blinder
    from sensorveil.methods.cloak import Cloak
    from sensorveil.methods.csi import CsiGenerator, CsiVae
    from sensorveil.methods.mass import Mass
    from sensorveil.methods.obscurenet import ObscureNet, ObscureNetPipeline
    from sensorveil.methods.obscurenet_baselines import (
        AttributeCAE,
        AttributeCVAE,
        AttributeVAE,
        GeneralVAE,
    )
    from sensorveil.methods.privdiffuser import PrivDiffuser
    from sensorveil.methods.registry import list_methods, register_method
    from sensorveil.methods.run import load_run, save_run
    from sensorveil.methods.seal import Seal

_MODULES = {
    "audit.given": ("audit_windows",),
    "data": ("load",),
    "methods.aae": ("AAE",),
    "methods.base": ("Obfuscator",),
    "methods.baselines": ("Downsample", "NoObfuscation", "Noise", "Resample"),
    "methods.blinder": ("Blinder",),
    "methods.cloak": ("Cloak",),
    "methods.csi": ("CsiGenerator", "CsiVae"),
    "methods.mass": ("Mass",),
    "methods.obscurenet": ("ObscureNet", "ObscureNetPipeline"),
    "methods.obscurenet_baselines": (
        "AttributeCAE",
        "AttributeCVAE",
        "AttributeVAE",
        "GeneralVAE",
    ),
    "methods.privdiffuser": ("PrivDiffuser",),
    "methods.registry": ("list_methods", "register_method"),
    "methods.run": ("load_run", "save_run"),
    "methods.seal": ("Seal",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

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
    "audit_windows",
    "list_methods",
    "load",
    "load_run",
    "register_method",
    "save_run",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'sensorveil' has no attribute '{name}'")
    return getattr(import_module(f"sensorveil.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
