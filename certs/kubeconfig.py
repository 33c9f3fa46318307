"""Kubeconfigs as this project writes them: one cluster, one user, everything inline. Pure.

Source: docs/parity.md § 2.5, "Kubeconfig secret".
"""

import base64
import json
from dataclasses import dataclass, field
from typing import Final

from apis.objects import Object

CONTEXT: Final = "default-context"


@dataclass(frozen=True)
class Identity:
    """Who connects to which cluster, and how."""

    name: str
    """Of the user entry: the name of the Identity."""
    cluster_id: str
    server: str
    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)
    namespace: str = ""
    proxy_url: str = ""


def forge(identity: Identity) -> bytes:
    """Return the kubeconfig of ``identity``; JSON, which every reader of YAML reads."""
    cluster: Object = {
        "server": identity.server,
        "certificate-authority-data": _inline(identity.ca),
    }
    if identity.proxy_url:
        cluster["proxy-url"] = identity.proxy_url
    user = {
        "client-certificate-data": _inline(identity.certificate),
        "client-key-data": _inline(identity.key),
    }
    context = {"cluster": identity.cluster_id, "user": identity.name}
    if identity.namespace:
        context["namespace"] = identity.namespace
    config: Object = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": identity.cluster_id, "cluster": cluster}],
        "users": [{"name": identity.name, "user": user}],
        "contexts": [{"name": CONTEXT, "context": context}],
        "current-context": CONTEXT,
    }
    return json.dumps(config, indent=2).encode() + b"\n"


def _inline(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
