"""The namespaces that nobody may offload, and the names that no tenant may ask for."""

from typing import Final

_SYSTEM_PREFIXES: Final = ("kube-", "liqo-tenant-")
_SYSTEM: Final = frozenset({"liqo", "liqo-storage"})
_RESERVED_PREFIXES: Final = (*_SYSTEM_PREFIXES, "openshift-")
_RESERVED: Final = _SYSTEM | {"default", "openshift"}


def is_system(namespace: str) -> bool:
    """Whether a namespace holds the cluster's own parts or ours, which stay at home.

    Source: behaviour.md 9, row 43.
    """
    return namespace in _SYSTEM or namespace.startswith(_SYSTEM_PREFIXES)


def is_reserved(name: str) -> bool:
    """Whether a provider refuses ``name`` for a twin namespace, whoever asks.

    Source: security.md A4, A5.
    """
    return name in _RESERVED or name.startswith(_RESERVED_PREFIXES)
