"""What the flags of the controllers say about grants. Pure.

Each raises argparse's own error, which names the value. Source: docs/parity.md § 4.
"""

from argparse import ArgumentTypeError
from typing import Final

from apis import naming, texts
from apis import resources as resources_
from apis.offloading import OfferedClass
from apis.resources import Resources

_ENFORCEMENTS: Final = {name.lower(): name for name in ("None", "Soft", "Hard")}
_DEFAULT: Final = "default"


def resources(text: str) -> Resources:
    """Return the amounts of ``cpu=4,memory=8Gi``."""
    try:
        return resources_.parse(texts.pairs(text))
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def labels(text: str) -> dict[str, str]:
    """Return the labels of ``region=europe,liqo.io/provider=kubeadm``."""
    try:
        pairs = texts.pairs(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    for name, value in pairs.items():
        if not naming.is_qualified_name(name) or not naming.is_label_value(value):
            raise ArgumentTypeError(f"{name}={value} is no label")
    return pairs


def enforcement(text: str) -> str:
    """Return None, Soft or Hard, however it is written."""
    if text.lower() not in _ENFORCEMENTS:
        raise ArgumentTypeError(f"{text!r} is not one of {', '.join(_ENFORCEMENTS.values())}")
    return _ENFORCEMENTS[text.lower()]


def classes(text: str) -> tuple[OfferedClass, ...]:
    """Return the classes of ``nginx;default,traefik``."""
    return tuple(_class(part) for part in text.split(",") if part)


def _class(part: str) -> OfferedClass:
    name, _, mark = part.partition(";")
    if not naming.is_dns_subdomain(name) or mark not in {"", _DEFAULT}:
        raise ArgumentTypeError(f"{part!r} is not a name, or a name and ';{_DEFAULT}'")
    return OfferedClass(name, is_default=bool(mark))
