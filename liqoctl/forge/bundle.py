"""What a maintainer may see of an installation: objects without secrets. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from apis import keys, objects
from apis.objects import Kind, Object

KINDS: Final = (
    keys.FOREIGN_CLUSTER, keys.IDENTITY, keys.NAMESPACE_MAP, keys.NAMESPACE_OFFLOADING,
    keys.PROVIDER_POLICY, keys.QUOTA, keys.RENEW, keys.RESOURCE_SLICE, keys.SHADOW_POD, keys.TENANT,
    keys.VIRTUAL_NODE, keys.VK_OPTIONS_TEMPLATE,
)  # fmt: skip
"""Kinds of which all objects are in a bundle."""
OWN: Final = (keys.DEPLOYMENT, keys.POD, keys.CONFIG_MAP, keys.EVENT)
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


def cleaned(obj: Object) -> Object:
    """Return ``obj`` without managed fields and without what may be secret in it."""
    found: Object = _cleaned(obj)
    found["metadata"].pop("managedFields", None)
    return found


def _cleaned(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if name in _SECRET_FIELDS and below else _cleaned(below)
            for name, below in value.items()
        }
    if isinstance(value, list):
        return [_cleaned(each) for each in value]
    return text(value) if isinstance(value, str) else value


def text(said: str) -> str:
    """Return ``said``, a log for example, without credentials."""
    return _CREDENTIALS.sub(HIDDEN, said)


def files(found: Mapping[Kind, Iterable[Object]]) -> Iterator[tuple[str, list[Object]]]:
    """Yield the name of a file for each kind, and the objects that it holds."""
    for kind, objs in found.items():
        ordered = sorted(objs, key=objects.key_of)
        yield (
            f"objects/{kind.plural}.{kind.group or 'core'}.json",
            [cleaned(one) for one in ordered],
        )
