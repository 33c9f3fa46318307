"""A ResourceSlice as a consumer sends it and as a provider answers it. Pure.

Source: docs/parity.md § 2.5, 4.4, 4.5, 4.7; SEC-A8, SEC-B3.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from apis import (
    authentication,
    keys,
    naming,
    objects,
    offloading,
    ownership,
    resources,
    slices,
    texts,
)
from apis.authentication import AuthParams, Tenant
from apis.objects import Key, Object
from certs import identity, pki, requests
from controllers.authentication.issuing.forge import CertificateRequest

_MOST_NAME: Final = 317
"""Characters of a qualified name: a domain of 253, a slash, and 63."""
_CLASSES: Final = ("storageClasses", "ingressClasses", "loadBalancerClasses")


def completion(obj: Object, provider: str, consumer: str, key: bytes) -> Object:
    """Return the merge patch that makes a slice one that is replicated; {} when it is.

    ``key`` is the private key of this cluster. A slice may have been written by hand, with nothing
    but what it asks for (docs/parity.md § 9, row 34).
    """
    patch: Object = {}
    metadata: Object = {}
    labels, have = ownership.original(provider), objects.labels(obj)
    if missing := {name: value for name, value in labels.items() if have.get(name) != value}:
        metadata["labels"] = missing
    if keys.SLICE_FINALIZER not in objects.finalizers(obj):
        metadata["finalizers"] = [*objects.finalizers(obj), keys.SLICE_FINALIZER]
    if spec := _spec(obj, provider, consumer, key):
        patch["spec"] = spec
    if metadata:
        patch["metadata"] = metadata
    return patch


def asked(obj: Object, provider: str) -> str:
    """Return what is told of a slice once ``provider`` is asked for it."""
    class_ = objects.spec(obj).get("class") or slices.DEFAULT_CLASS
    if class_ in slices.BUILT_IN:
        return f"asks cluster {provider}"
    whom = f"a controller of class {class_} has to run there and grant it"
    return f"asks cluster {provider}: {whom}; else choose class {slices.DEFAULT_CLASS}"


def _spec(obj: Object, provider: str, consumer: str, key: bytes) -> Object:
    spec = objects.spec(obj)
    wanted = {"consumerClusterID": consumer, "providerClusterID": provider}
    changes: Object = {name: value for name, value in wanted.items() if spec.get(name) != value}
    user = naming.quota_name(obj["metadata"]["name"], consumer)
    if not _is_request(spec, user, consumer, key):
        made = pki.new_csr(key, common_name=user, organizations=[consumer])
        changes["csr"] = authentication.encoded(made)
    return changes


def _is_request(spec: Object, user: str, consumer: str, key: bytes) -> bool:
    """Whether the request in ``spec`` is for this slice, by the key that we have now."""
    try:
        found = authentication.decoded(spec, "csr")
    except ValueError:
        return False
    if requests.problems(found, common_name=user, organization=consumer):
        return False
    return identity.is_key_of(found, pki.public_key(key))


def wants_node(obj: Object) -> bool:
    """Whether a virtual node is to be made: asked for, and both questions answered with yes."""
    return slices.makes_virtual_node(obj) and all(
        slices.is_accepted(obj, type_) for type_ in (slices.AUTHENTICATION, slices.RESOURCES)
    )


def virtual_node(
    obj: Object,
    provider: str,
    secret: str,
    existing: Object | None,
    allowed: Collection[str] | None = None,
) -> Object:
    """Return the VirtualNode of the slice ``obj``; what its administrator added to it stays.

    ``allowed`` are the labels that the VkOptionsTemplate lets a provider suggest, None for those
    of ``slices.suggested``. They are kept apart from ``spec.labels``, which are the
    administrator's: no suggestion is ever taken for one of those, whatever its value
    (docs/parity.md H1). What was taken before and is not allowed any more stays as it was until
    its provider takes it back: namespaces may be offloaded by it.
    """
    key, status = objects.key_of(obj), objects.status(obj)
    before: Object = objects.spec(existing)
    own: dict[str, str] = before.get("labels") or {}
    named = status.get("nodeLabels") or {}
    taken = {name: value for name, value in _noted(existing).items() if name in named}
    said = {**taken, **slices.suggested(named, allowed)}
    offered = {name: value for name, value in said.items() if name not in own}
    spec = {
        **before,
        "clusterID": provider,
        "kubeconfigSecretRef": {"name": secret},
        "labels": {**own, keys.REMOTE_CLUSTER_ID: provider},
        "resourceQuota": {**(before.get("resourceQuota") or {}), "hard": slices.granted(obj)},
    }
    for name in _CLASSES:
        spec[name] = status.get(name) or []
    if selector := status.get("nodeSelector"):
        patch = spec.get("offloadingPatch") or {}
        spec["offloadingPatch"] = {**patch, "nodeSelector": dict(selector)}
    metadata = {
        "labels": {keys.REMOTE_CLUSTER_ID: provider, keys.RESOURCE_SLICE_NAME: key.name},
        "annotations": _note(offered, existing),
        "ownerReferences": [objects.owner_reference(keys.RESOURCE_SLICE, obj)],
    }
    return objects.named(keys.VIRTUAL_NODE, key, metadata=metadata, spec=spec)


def changes(existing: Object, wanted: Object) -> Object:
    """Return the merge patch that makes a VirtualNode as ``wanted``; {} when it is."""
    have, note = objects.annotations(existing), objects.annotations(wanted)
    spec = objects.merge_patch(existing["spec"], wanted["spec"])
    is_noted = note.items() <= have.items()
    return {
        **({"spec": spec} if spec else {}),
        **({} if is_noted else {"metadata": {"annotations": note}}),
    }


def _note(offered: Mapping[str, str], existing: Object | None) -> dict[str, str]:
    """Return the annotation that holds the suggested labels; empty where there never were any."""
    is_noted = keys.SUGGESTED_LABELS in objects.annotations(existing or {"metadata": {}})
    return offloading.noted_labels(offered) if offered or is_noted else {}


def _noted(existing: Object | None) -> dict[str, str]:
    return offloading.suggested_labels(existing) if existing else {}


def labels_apart(
    obj: Object, node: Object, allowed: Collection[str] | None = None
) -> dict[str, list[str]]:
    """Return which labels a provider suggests to no effect, and which it could not suggest now.

    Shape: {refused: names, kept: names}, each only where there are any; ``node`` is the VirtualNode
    as it is to be. Kept are those that were allowed when they came. Source: docs/decisions/0013
    (11).
    """
    named = objects.status(obj).get("nodeLabels") or {}
    may, noted = slices.suggested(named, allowed), _noted(node)
    has = {*node["spec"]["labels"], *noted}
    found = {
        "refused": [name for name in sorted(named) if name not in has],
        "kept": [name for name in sorted(noted) if name not in may],
    }
    return {
        what: [texts.clamp(name, _MOST_NAME) for name in names[: slices.MOST_LABELS]]
        for what, names in found.items()
        if names
    }


def largest_pod(obj: Object) -> dict[str, str]:
    """Return what one pod can have, as the provider says, and never more than was granted."""
    said = resources.readable(objects.status(obj).get("largestPod") or {})
    bounds = resources.parse_resources(slices.granted(obj))
    return {name: str(min(amount, bounds[name])) for name, amount in said.items() if name in bounds}


# Whom a provider certifies: a slice that asks for exactly its own name ----------------------------
# Source: docs/parity.md § 4.5, 2.5; SEC-A8.

ACCEPTED: Final = "ResourceSliceAuthenticationAccepted"
_READY: Final = "Ready"


def problem(obj: Object, tenant: Tenant) -> str:
    """Return why the slice is not certified; empty when it is."""
    spec, name = objects.spec(obj), obj["metadata"]["name"]
    consumer = spec.get("consumerClusterID") or ""
    if consumer != tenant.cluster_id:
        return f"spec.consumerClusterID {consumer!r} is not {tenant.cluster_id}, whose tenant it is"
    try:
        request = authentication.decoded(spec, "csr")
    except ValueError as error:
        return f"spec.{error}"
    user = naming.quota_name(name, consumer)
    if found := requests.problems(request, common_name=user, organization=consumer):
        return f"spec.csr: {'; '.join(found)}"
    if tenant.has_handshake and not identity.is_key_of(request, tenant.public_key):
        return "spec.csr: its key is not the one that the tenant proved to have: peer again"
    return ""


def is_let_in(tenant: Object) -> bool:
    """Whether the Tenant has proved who it is, and is welcome."""
    return objects.is_condition_true(objects.status(tenant).get("conditions"), _READY)


def request(obj: Object, tenant: Tenant) -> CertificateRequest:
    key = objects.key_of(obj)
    return CertificateRequest(
        secret=Key(key.namespace, naming.remote_certificate(key.name)),
        csr=authentication.decoded(obj["spec"], "csr"),
        consumer=tenant.cluster_id,
        proxy_url=tenant.proxy_url,
        announced=tenant.announced,
    )


def denied(obj: Object, why: str, now: datetime) -> Object:
    return _answered(obj, slices.DENIED, slices.AUTHENTICATION_DENIED, why, now)


def accepted(obj: Object, params: AuthParams, now: datetime) -> Object:
    message = "the request is for this slice, by the tenant's key"
    return {
        **_answered(obj, slices.ACCEPTED, ACCEPTED, message, now),
        "authParams": params.shown(),
    }


def _answered(obj: Object, answer: str, reason: str, message: str, now: datetime) -> Object:
    before = objects.status(obj)
    said = objects.set_condition(
        before.get("conditions"), slices.AUTHENTICATION, answer, reason, message, now
    )
    return {**before, "conditions": said}


def is_certificate(secret: Object, consumer: str) -> bool:
    """Whether the Secret keeps a certificate of the consumer, and nothing of somebody else."""
    return ownership.cluster_named_by(secret) == consumer and (
        objects.labels(secret).get(keys.LIQO_MANAGED) == "true"
    )
