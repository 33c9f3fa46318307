"""The Secret with the kubeconfig of an Identity, the Identity of a slice, and what is believed.

Source: docs/parity.md § 2.5, 4.8; SEC-B4, SEC-B5.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from apis import authentication, keys, naming, objects, ownership
from apis.authentication import AuthParams, Identity, IdentityType
from apis.objects import Key, Object
from certs import pki

KIND: Final = keys.IDENTITY
SERVER_CHANGED: Final = "ServerChanged"


class IdentityRefusedError(Exception):
    """The Identity cannot be used; ``reason`` and message are for an event."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def secret_of(identity: Key) -> Key:
    return Key(identity.namespace, naming.kubeconfig_secret(identity.name))


def identity_of(secret: Key) -> Key | None:
    prefix = naming.kubeconfig_secret("")
    name = secret.name.removeprefix(prefix)
    return Key(secret.namespace, name) if secret.name.startswith(prefix) and name else None


def check(identity: Identity, key: bytes) -> None:
    """Refuse what cannot get us in, or is for somebody else.

    Raises:
        IdentityRefusedError: no server, no certificate, or one for another key.
    """
    params = identity.params
    if not params.api_server.startswith("https://"):
        message = f"spec.authParams.apiServer {params.api_server!r} is no https URL"
        raise IdentityRefusedError("InvalidAuthParams", message)
    try:
        fits = pki.fits_key(params.certificate, key)
    except ValueError:
        fits = False
    if not fits:
        message = "spec.authParams.signedCRT is no certificate for the key of this cluster"
        raise IdentityRefusedError("InvalidAuthParams", f"{message}: peer again")


def config(identity: Identity, key: bytes) -> bytes:
    params = identity.params
    return pki.kubeconfig(
        pki.KubeconfigIdentity(
            name=identity.name,
            cluster_id=identity.cluster_id,
            server=params.api_server,
            ca=params.ca,
            certificate=params.certificate,
            key=key,
            namespace=identity.namespace,
            proxy_url=params.proxy_url,
        )
    )


def secret(obj: Object, identity: Identity, text: bytes) -> Object:
    """Return the Secret that holds the kubeconfig ``text`` of the Identity ``obj``.

    That of a control plane outlives its Identity until all is withdrawn from the provider.
    """
    metadata: Object = {
        "labels": {
            keys.REMOTE_CLUSTER_ID: identity.cluster_id,
            keys.IDENTITY_TYPE: identity.type.value,
            keys.LIQO_MANAGED: "true",
        },
        "ownerReferences": [objects.owner_reference(KIND, obj)],
    }
    if identity.namespace:
        metadata["annotations"] = {keys.REMOTE_TENANT_NAMESPACE: identity.namespace}
    if identity.type is IdentityType.CONTROL_PLANE:
        metadata["finalizers"] = [keys.REPLICATION_SECRET_FINALIZER]
    return objects.named(
        keys.SECRET,
        secret_of(objects.key_of(obj)),
        metadata=metadata,
        type="Opaque",
        data={keys.KUBECONFIG_KEY: authentication.encoded(text)},
    )


def is_needed(secret_: Object, replicated: Iterable[Object]) -> bool:
    """Whether anything is still to be withdrawn from the peer that the kubeconfig is for."""
    where, peer = objects.key_of(secret_).namespace, ownership.cluster_named_by(secret_)
    return any(
        objects.key_of(each).namespace == where and ownership.is_for(each, peer)
        for each in replicated
    )


def of_slice(resource_slice: Object, provider: str, params: AuthParams) -> Object:
    where = objects.key_of(resource_slice)
    metadata = {
        "labels": {
            keys.REMOTE_CLUSTER_ID: provider,
            keys.RESOURCE_SLICE_NAME: where.name,
            keys.LIQO_MANAGED: "true",
        },
        "ownerReferences": [objects.owner_reference(keys.RESOURCE_SLICE, resource_slice)],
    }
    return objects.named(
        KIND,
        Key(where.namespace, naming.resourceslice_identity(where.name)),
        metadata=metadata,
        spec={
            "clusterID": provider,
            "type": IdentityType.RESOURCE_SLICE.value,
            "authParams": params.shown(),
        },
    )


def adopted(params: AuthParams, trusted: AuthParams) -> AuthParams:
    """Return what is taken of ``params``: the certificate, and authorities that follow known ones.

    Where this cluster connects is an administrator's choice, made when it peered: a provider moves
    it nowhere. A bundle that has one of the ``trusted`` authorities is that of the same server
    whose authority is replaced. Source: docs/parity.md SEC-B4.
    """
    ca = params.ca if authentication.follows(params.ca, trusted.ca) else trusted.ca
    return replace(trusted, ca=ca, certificate=params.certificate)


def change(params: AuthParams, trusted: AuthParams) -> str:
    """Return what of ``params`` was not taken, and what to do; empty if nothing is left out."""
    if params.is_same_server(trusted):
        return ""
    message = f"the provider names the API server {params.api_server!r}, or a CA or proxy, "
    message += f"other than at peering time ({trusted.api_server!r}), which stays in use"
    return f"{message}: liqoctl peer --replace if the other one is right"
