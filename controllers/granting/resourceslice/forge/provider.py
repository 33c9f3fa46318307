"""Whom a provider certifies: a slice that asks for exactly its own name. Pure.

Source: docs/parity.md § 4.5, 2.5; SEC-A8.
"""

from datetime import datetime
from typing import Final

from apis import authentication, conditions, keys, naming, objects, slices
from apis.authentication import AuthParams, Tenant
from apis.objects import Key, Object
from certs import csr, identity
from controllers.authentication.issuing.forge import Request

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
    if found := csr.problems(request, common_name=user, organization=consumer):
        return f"spec.csr: {'; '.join(found)}"
    if tenant.has_handshake and not identity.is_key_of(request, tenant.public_key):
        return "spec.csr: its key is not the one that the tenant proved to have: peer again"
    return ""


def is_let_in(tenant: Object) -> bool:
    """Whether the Tenant has proved who it is, and is welcome."""
    return conditions.is_true(objects.status(tenant).get("conditions"), _READY)


def request(obj: Object, tenant: Tenant) -> Request:
    key = objects.key_of(obj)
    return Request(
        secret=Key(key.namespace, naming.remote_certificate(key.name)),
        csr=authentication.decoded(obj["spec"], "csr"),
        consumer=tenant.cluster_id,
        proxy_url=tenant.proxy_url,
        announced=tenant.announced,
    )


def denied(obj: Object, why: str, now: datetime) -> Object:
    """Return the status of a slice that is not certified."""
    return _answered(obj, slices.DENIED, slices.AUTHENTICATION_DENIED, why, now)


def accepted(obj: Object, params: AuthParams, now: datetime) -> Object:
    message = "the request is for this slice, by the tenant's key"
    return {
        **_answered(obj, slices.ACCEPTED, ACCEPTED, message, now),
        "authParams": params.shown(),
    }


def _answered(obj: Object, answer: str, reason: str, message: str, now: datetime) -> Object:
    before = objects.status(obj)
    said = conditions.set_(
        before.get("conditions"), slices.AUTHENTICATION, answer, reason, message, now
    )
    return {**before, "conditions": said}


def is_certificate(secret: Object, consumer: str) -> bool:
    """Whether the Secret keeps a certificate of the consumer, and nothing of somebody else."""
    return authentication.remote_cluster(secret) == consumer and (
        objects.labels(secret).get(keys.LIQO_MANAGED) == "true"
    )
