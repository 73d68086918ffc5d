"""All methods by name; a method's module is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TypeVar, cast

from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.methods.base import Obfuscator

_BUILT_IN = {
    "none": "baselines:NoObfuscation",
    "noise": "baselines:Noise",
    "downsample": "baselines:Downsample",
    "resample": "baselines:Resample",
    "general-vae": "obscurenet_baselines:GeneralVAE",
    "attribute-vae": "obscurenet_baselines:AttributeVAE",
    "attribute-cae": "obscurenet_baselines:AttributeCAE",
    "attribute-cvae": "obscurenet_baselines:AttributeCVAE",
    "aae": "aae:AAE",
    "obscurenet": "obscurenet:ObscureNet",
    "obscurenet-pipeline": "obscurenet:ObscureNetPipeline",
    "privdiffuser": "privdiffuser:PrivDiffuser",
    "cloak": "cloak:Cloak",
    "mass": "mass:Mass",
    "csi": "csi:CsiGenerator",
    "csi-vae": "csi:CsiVae",
    "blinder": "blinder:Blinder",
    "seal": "seal:Seal",
}
"""Module (below `sensorveil.methods`) and class of each method, in the order they are listed."""

_REGISTERED: dict[str, type[Obfuscator]] = {}

Method = TypeVar("Method", bound=type[Obfuscator])


def register_method(cls: Method) -> Method:
    """Make a method of your own known by its name, as a class decorator.

    Then `load_run` reads its runs in every program that imports its module.
    """
    if cls.name in _BUILT_IN:
        raise Refusal(f"a method '{cls.name}' exists already; give yours another name")
    _REGISTERED[cls.name] = cls
    return cls


def list_methods() -> tuple[str, ...]:
    """The names of all methods.

    >>> "seal" in list_methods()
    True
    """
    return (*_BUILT_IN, *(name for name in _REGISTERED if name not in _BUILT_IN))


def method(name: str) -> type[Obfuscator]:
    """The class of a method, or the refusal that lists the known ones.

    >>> method("noise").name
    'noise'
    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in _BUILT_IN:
        raise refuse_unknown("method", name, list_methods())
    module, _, cls = _BUILT_IN[name].partition(":")
    return cast(type[Obfuscator], getattr(import_module(f"sensorveil.methods.{module}"), cls))
