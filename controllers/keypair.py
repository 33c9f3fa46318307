"""The cluster's own key pair: made once, by which it proves who it is to its providers."""

import logging

from apis import authentication, keys
from apis.objects import Key, Object, named
from certs import identity, pki
from kube.cluster import Cluster
from kube.errors import AlreadyExistsError
from kube.reconcile import TerminalError

_PRIVATE = "privateKey"
_PUBLIC = "publicKey"

logger = logging.getLogger(__name__)


async def ensure(cluster: Cluster, namespace: str = keys.LIQO_NAMESPACE) -> bytes:
    """Return the private key, PEM, from the Secret ``authentication-keys``.

    Raises:
        TerminalError: the Secret is there and holds no key.
    Source: docs/parity.md § 2.5, "Local key pair".
    """
    key = Key(namespace, keys.AUTHENTICATION_KEYS)
    found = await cluster.get_live(keys.SECRET, key) or await _create(cluster, key)
    try:
        private = authentication.decoded(found.get("data") or {}, _PRIVATE)
        pki.public_key(private)
    except ValueError as error:
        message = f"secret {key} has no usable {_PRIVATE}: delete it and peer again"
        raise TerminalError("NoKeyPair", message) from error
    return private


async def _create(cluster: Cluster, key: Key) -> Object:
    private = identity.new_key()
    data = {
        _PRIVATE: authentication.encoded(private),
        _PUBLIC: authentication.encoded(pki.public_key(private)),
    }
    wanted = named(
        keys.SECRET,
        key,
        metadata={"labels": {keys.LIQO_MANAGED: "true"}},
        type="Opaque",
        data=data,
    )
    logger.info("Creating the key pair of this cluster", extra={"secret": str(key)})
    try:
        return await cluster.create(keys.SECRET, wanted)
    except AlreadyExistsError:
        return await cluster.get_live(keys.SECRET, key) or wanted
