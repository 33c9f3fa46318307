"""What of a cluster is kept in a backup, and what a maintainer may see of it in a bundle. Pure.

Source: docs/backup.md.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from apis import keys, objects
from apis.objects import Kind, Object

OURS: Final = (keys.VK_OPTIONS_TEMPLATE, keys.PROVIDER_POLICY)
"""Kinds of which every object is an administrator's word."""
_CONTENT: Final = ("type", "data", "spec")
_OF_SERVERS: Final = frozenset(
    {"kubectl.kubernetes.io/last-applied-configuration", "kubernetes.io/metadata.name"}
)
_IMAGE: Final = "containerImage"
"""Of the default template it follows the installation."""
_OF_PYLIQO: Final = frozenset({keys.SCHEDULING_ENABLED})
"""Labels of a user's namespace that its NamespaceOffloading brings back."""


def kept(kind: Kind, obj: Object) -> Object:
    """Return ``obj`` as it was said, without what a server or a controller adds."""
    metadata: dict[str, Any] = {
        name: obj["metadata"][name] for name in ("name", "namespace") if obj["metadata"].get(name)
    }
    for name, said in (("labels", objects.labels(obj)), ("annotations", objects.annotations(obj))):
        if own := {key: text for key, text in said.items() if not _is_added(key)}:
            metadata[name] = own
    made: Object = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    if kind == keys.NAMESPACE:
        return made
    made |= {name: obj[name] for name in _CONTENT if name in obj}
    if kind == keys.VK_OPTIONS_TEMPLATE and objects.labels(obj).get(keys.APP_MANAGED_BY) == "liqo":
        made["spec"] = {name: said for name, said in made["spec"].items() if name != _IMAGE}
    return made


def _is_added(key: str) -> bool:
    return key in _OF_SERVERS or key in _OF_PYLIQO


# A bundle: what a maintainer may see of an installation, objects without secrets ----------------

BUNDLED: Final = (
    keys.FOREIGN_CLUSTER, keys.IDENTITY, keys.NAMESPACE_MAP, keys.NAMESPACE_OFFLOADING,
    keys.PROVIDER_POLICY, keys.QUOTA, keys.RENEW, keys.RESOURCE_SLICE, keys.SHADOW_POD, keys.TENANT,
    keys.VIRTUAL_NODE, keys.VK_OPTIONS_TEMPLATE,
)  # fmt: skip
"""Kinds of which all objects are in a bundle."""
BUNDLED_OF_PYLIQO: Final = (keys.DEPLOYMENT, keys.POD, keys.CONFIG_MAP, keys.EVENT)
"""Kinds of which those in the namespace of pyliqo, and in tenant namespaces, are."""
HIDDEN: Final = "(left out)"
_SECRET_FIELDS: Final = frozenset(
    {
        "annotations", "args", "authParams", "ca", "command", "csr", "data", "env", "nonce",
        "proxyURL", "publicKey", "signature", "signedCRT", "signedNonce", "stringData", "token",
        "binaryData",
    }
)  # fmt: skip
"""Fields by whose name a secret, or a certificate, may be in them."""
_CREDENTIALS: Final = re.compile(
    r"-----BEGIN[^-]*-----.*?(-----END[^-]*-----|$)"
    r"|\beyJ[\w-]+\.[\w-]+\.[\w-]*"
    r"|(?<=://)[^/@\s]+(?=@)"
    r"|(?i:(?<=bearer )\S+)",
    re.DOTALL,
)
"""PEM blocks, JSON web tokens, user and password of URLs, bearer tokens."""


def without_secrets(obj: Object) -> Object:
    """Return ``obj`` without managed fields and without what may be secret in it."""
    found: Object = _without_secrets(obj)
    found["metadata"].pop("managedFields", None)
    return found


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if name in _SECRET_FIELDS and below else _without_secrets(below)
            for name, below in value.items()
        }
    if isinstance(value, list):
        return [_without_secrets(each) for each in value]
    return without_credentials(value) if isinstance(value, str) else value


def without_credentials(said: str) -> str:
    """Return ``said``, a log for example, without credentials."""
    return _CREDENTIALS.sub(HIDDEN, said)


def archive_files(found: Mapping[Kind, Iterable[Object]]) -> Iterator[tuple[str, list[Object]]]:
    """Yield the name of a file for each kind, and the objects that it holds."""
    for kind, objs in found.items():
        ordered = sorted(objs, key=objects.key_of)
        yield (
            f"objects/{kind.plural}.{kind.group or 'core'}.json",
            [without_secrets(one) for one in ordered],
        )
