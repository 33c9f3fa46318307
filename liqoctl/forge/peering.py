"""The objects that two clusters exchange to peer, as manifests. Pure.

Source: docs/parity.md § 2.5, 7.4-7.6.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from apis import authentication, conditions, keys, naming, objects, whose
from apis.authentication import AuthParams
from apis.objects import Key, Kind, Object
from certs import identity as own
from certs import pki

Metadata = Mapping[str, Mapping[str, str]]
_PRIVILEGED: Final = (keys.POD_SECURITY_ENFORCE, keys.POD_SECURITY_AUDIT, keys.POD_SECURITY_WARN)


def tenant_namespace(peer: str) -> Object:
    labels = {
        keys.TENANT_NAMESPACE: "true",
        keys.REMOTE_CLUSTER_ID: peer,
        **dict.fromkeys(_PRIVILEGED, "privileged"),
    }
    key = Key("", naming.tenant_namespace(peer))
    return objects.named(keys.NAMESPACE, key, metadata={"labels": labels})


def tenant_namespace_selector(peer: str) -> str:
    """Return the labels by which the namespace of ``peer`` is found, whatever its name."""
    return f"{keys.TENANT_NAMESPACE}=true,{keys.REMOTE_CLUSTER_ID}={peer}"


def nonce(namespace: str, consumer: str) -> Object:
    """Return the Secret that the provider's controllers fill with a nonce."""
    labels = {keys.REMOTE_CLUSTER_ID: consumer, keys.NONCE_LABEL: "true"}
    return _secret(Key(namespace, keys.NONCE_SECRET), labels)


def signed_nonce(namespace: str, provider: str, text: str) -> Object:
    """Return the Secret in which the consumer's controllers sign the nonce ``text``."""
    labels = {keys.REMOTE_CLUSTER_ID: provider, keys.SIGNED_NONCE_LABEL: "true"}
    data = {"nonce": authentication.encoded(text.encode())}
    return _secret(Key(namespace, keys.SIGNED_NONCE_SECRET), labels) | {"data": data}


def _secret(key: Key, labels: Mapping[str, str]) -> Object:
    return objects.named(keys.SECRET, key, metadata={"labels": dict(labels)}, type="Opaque")


def tenant(
    key: Key, consumer: str, proof: Mapping[str, bytes], metadata: Metadata, proxy_url: str = ""
) -> Object:
    """Return the Tenant by which the provider knows ``consumer``.

    Shape: ``proof`` is {publicKey, csr, signature}.
    """
    spec: Object = {
        "clusterID": consumer,
        "authzPolicy": "KeysExchange",
        "tenantCondition": "Active",
        **{name: authentication.encoded(value) for name, value in proof.items()},
    }
    if proxy_url:
        spec["proxyURL"] = proxy_url
    return _labelled(keys.TENANT, key, consumer, spec, metadata)


def identity(
    key: Key, provider: str, params: AuthParams, remote_namespace: str, metadata: Metadata
) -> Object:
    """Return the Identity by which the consumer's control plane signs in to ``provider``."""
    spec = {
        "clusterID": provider,
        "type": keys.CONTROL_PLANE_IDENTITY,
        "authParams": params.shown(),
        "namespace": remote_namespace,
    }
    return _labelled(keys.IDENTITY, key, provider, spec, metadata)


def with_networks(identity: Object, networks: str) -> Object:
    """Return ``identity`` naming the ``networks`` of the provider's pods, if there are any."""
    if networks:
        identity["metadata"].setdefault("annotations", {})[keys.POD_NETWORKS] = networks
    return identity


def pod_networks(identity: Object | None) -> str:
    return objects.annotations(identity or {"metadata": {}}).get(keys.POD_NETWORKS, "")


def told_networks(networks: str) -> str:
    """Return what is told of the ``networks`` of a provider's pods."""
    if networks:
        return f"pods of the provider are in {networks}"
    return (
        "the provider names no networks of its pods, so their addresses are not published: "
        "add --provider-pod-cidr"
    )


def resource_slice(
    key: Key, provider: str, spec: Object, metadata: Metadata, *, makes_node: bool
) -> Object:
    """Return the ResourceSlice that asks ``provider`` for resources.

    Without the annotation a virtual node would be made of it.
    """
    made = _labelled(
        keys.RESOURCE_SLICE, key, provider, {**spec, "providerClusterID": provider}, metadata
    )
    made["metadata"]["labels"] |= whose.original(provider)
    answer = "true" if makes_node else "false"
    made["metadata"].setdefault("annotations", {})[keys.CREATE_VIRTUAL_NODE] = answer
    return made


def _labelled(kind: Kind, key: Key, peer: str, spec: Object, metadata: Metadata) -> Object:
    labels = {**metadata.get("labels", {}), keys.REMOTE_CLUSTER_ID: peer}
    named: Object = {"labels": labels}
    if annotations := metadata.get("annotations"):
        named["annotations"] = dict(annotations)
    return objects.named(kind, key, metadata=named, spec=spec)


def other_server(identity_: Object | None, wanted: Object) -> str:
    """Return why ``identity_`` is not to become ``wanted`` unasked; empty if it may.

    A cluster says itself what it is called, and this Identity leads to another one of that name.
    Source: docs/parity.md SEC-B4.
    """
    before, after = (objects.spec(each) for each in (identity_, wanted))
    try:
        held, named = (AuthParams.parse(each.get("authParams")) for each in (before, after))
    except ValueError:
        return ""  # nobody gets in by one that cannot be read
    if not held.api_server or replace(held, proxy_url=named.proxy_url).is_same_server(named):
        return ""
    peer = str(after["clusterID"])
    return (
        f"identity {objects.key_of(wanted)}: {peer} is a peer already, at {held.api_server}; the "
        f"cluster that calls itself {peer} now is at {named.api_server}, or has another CA: "
        "liqoctl unpeer first, or add --replace if it is the same one, moved"
    )


def is_entrance_of(identity_: Object | None, announced: AuthParams) -> bool:
    """Whether ``identity_`` leads just there already: somebody has said yes to that before."""
    try:
        held = AuthParams.parse(objects.spec(identity_).get("authParams"))
    except ValueError:
        return False
    return bool(held.api_server) and held.is_same_server(announced)


def other_key(tenant_: Object | None, key: bytes) -> str:
    """Return why ``tenant_`` is not to be that of the cluster with ``key`` unasked."""
    public = authentication.decoded(objects.spec(tenant_), "publicKey")
    if tenant_ is None or not public or own.is_public_key_of(public, key):
        return ""
    where = objects.key_of(tenant_)
    return (
        f"tenant {where}: it is that of another cluster called {where.name}, by its public key: "
        "liqoctl unpeer there first, or add --replace if it is the same one, with a new key"
    )


def is_let_in(tenant_: Object | None) -> bool:
    """Whether the provider let the consumer in, judging what its Tenant says now."""
    return bool(params_of(tenant_)) and is_ready(tenant_) == "True"


def is_let_in_now(tenant_: Object | None, now: datetime) -> bool:
    """Whether the consumer is let in, by a certificate that has not ended."""
    if not is_let_in(tenant_):
        return False
    try:
        return pki.expiry(AuthParams.parse(params_of(tenant_)).certificate) > now
    except ValueError:
        return False


def params_of(obj: Object | None) -> Object:
    """Return ``status.authParams`` of a Tenant."""
    params: Object = objects.status(obj).get("authParams") or {}
    return params


def is_ready(tenant_: Object | None) -> str:
    """Return the status of ``Ready`` for the spec as it is now; empty before it is judged.

    A provider that runs Liqo writes no conditions: there, the certificate says yes.
    """
    if not _conditions(tenant_):
        return "True" if _is_certified(tenant_ or {}) else ""
    found = _condition(tenant_, "Ready")
    generation = ((tenant_ or {}).get("metadata") or {}).get("generation")
    return str(found.get("status", "")) if found.get("observedGeneration") == generation else ""


def _is_certified(tenant_: Object) -> bool:
    """Whether there is a certificate for the key that the Tenant names now."""
    try:
        certificate = AuthParams.parse(params_of(tenant_)).certificate
        public = authentication.decoded(objects.spec(tenant_), "publicKey")
    except ValueError:
        return False
    return bool(certificate) and own.is_certified(certificate, public)


def is_judged(tenant_: Object | None) -> bool:
    """Whether the provider has said yes or no to the Tenant as it is now."""
    return is_let_in(tenant_) or is_ready(tenant_) == "False"


def complaint(tenant_: Object | None) -> str:
    """Return why the consumer is not let in, as far as the provider says."""
    found = _condition(tenant_, "Ready")
    return f"{found.get('reason')}: {found.get('message')}" if found else "nothing is said yet"


def _condition(obj: Object | None, type_: str) -> Object:
    return conditions.find(_conditions(obj), type_) or {}


def _conditions(obj: Object | None) -> list[Object]:
    return objects.status(obj).get("conditions") or []


def answers(resource_slice_: Object | None) -> dict[str, str]:
    """Return what the provider said to a slice: {Authentication: Accepted, ...}."""
    found = objects.status(resource_slice_).get("conditions") or []
    return {str(each["type"]): str(each["status"]) for each in found}


def told_answers(resource_slice_: Object | None) -> str:
    """Return what the provider said to a slice, for people."""
    said = answers(resource_slice_).items()
    return ", ".join(f"{type_} {status}" for type_, status in said) or "nothing is said yet"


def is_answered(resource_slice_: Object | None) -> bool:
    """Whether the provider said yes or no to both questions, or no to the first."""
    said = answers(resource_slice_)
    return said.get("Authentication") == "Denied" or {"Authentication", "Resources"} <= said.keys()


def has_secret(identity_: Object | None) -> bool:
    status = objects.status(identity_)
    return bool((status.get("kubeconfigSecretRef") or {}).get("name"))


def is_by(secret: Object | None, certificate: bytes) -> bool:
    """Whether the kubeconfig in ``secret`` signs in by ``certificate``, not one of before."""
    text = data_in(secret, keys.KUBECONFIG_KEY)
    return authentication.encoded(certificate).encode() in text


def data_in(secret: Object | None, name: str) -> bytes:
    """Return what the Secret holds as ``name``; nothing before it does.

    Raises:
        ValueError: it is not base64.
    """
    return authentication.decoded((secret or {}).get("data") or {}, name)
