"""The signing request, the Secret that keeps what came of it, and where consumers connect."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from apis import authentication, keys, networks, objects, ownership
from apis.networks import ListenAddress
from apis.objects import Key, Object

REASON: Final = "IdentityManagerApproval"
LIFETIME: Final = timedelta(hours=24)
PORT: Final = 6443

_CSR: Final = "csr"
_CERTIFICATE: Final = "certificate"
_ADDRESSES: Final = ("ExternalDNS", "ExternalIP", "InternalDNS", "InternalIP", "Hostname")


@dataclass(frozen=True)
class CertificateRequest:
    """What a consumer asks to have certified, and where the answer is kept."""

    secret: Key
    """``liqo-remote-certificate[-<slice>]`` in the tenant namespace."""
    csr: bytes
    consumer: str
    proxy_url: str = ""
    announced: str = ""
    """The URL of the API server that the consumer was told before, if it was."""


@dataclass(frozen=True)
class StoredCertificate:
    """A certificate and the request that it is the answer to."""

    csr: bytes
    certificate: bytes
    issued_at: datetime | None

    @classmethod
    def parse(cls, secret: Object | None) -> "StoredCertificate | None":
        """Return what the Secret keeps; None for what cannot be used, which is made again."""
        if secret is None:
            return None
        data = secret.get("data") or {}
        try:
            csr = authentication.decoded(data, _CSR)
            certificate = authentication.decoded(data, _CERTIFICATE)
        except ValueError:
            return None
        stamp = objects.annotations(secret).get(keys.ISSUED_AT, "")
        return cls(csr, certificate, objects.parse_time(stamp)) if csr and certificate else None


def signing_request(request: CertificateRequest, lifetime: timedelta) -> Object:
    """Return the CertificateSigningRequest by which the API server's own signer is asked."""
    return {
        "apiVersion": keys.CERTIFICATE_SIGNING_REQUEST.api_version,
        "kind": keys.CERTIFICATE_SIGNING_REQUEST.kind,
        "metadata": {
            "generateName": "liqo-identity-",
            "labels": {
                keys.REMOTE_TENANT_CSR: "true",
                keys.REMOTE_CLUSTER_ID: request.consumer,
            },
        },
        "spec": {
            "request": authentication.encoded(request.csr),
            "signerName": keys.CLIENT_SIGNER,
            "usages": ["digital signature", "key encipherment", "client auth"],
            "expirationSeconds": int(lifetime.total_seconds()),
        },
    }


def approval(request: Object, now: datetime) -> Object:
    moment = objects.timestamp(now)
    condition = {
        "type": "Approved",
        "status": "True",
        "reason": REASON,
        "message": "the consumer proved that it owns the key, and asks for its own name",
        "lastUpdateTime": moment,
        "lastTransitionTime": moment,
    }
    version = {"resourceVersion": request["metadata"]["resourceVersion"]}
    return {"metadata": version, "status": {"conditions": [condition]}}


def certificate_in(request: Object) -> bytes:
    """Return the certificate in the status of a signing request; nothing before it is there."""
    return authentication.decoded(objects.status(request), "certificate")


def is_decided(request: Object | None) -> bool:
    """Whether there is nothing to wait for any more: signed, refused, or gone."""
    return request is None or bool(certificate_in(request)) or bool(refusal(request))


def is_approved(request: Object) -> bool:
    found = objects.status(request).get("conditions") or []
    return any(condition["type"] == "Approved" for condition in found)


def is_same_and_pending(request: Object, wanted: Object) -> bool:
    """Whether ``request`` asks for what is ``wanted``, and is neither signed nor refused."""
    same = all(request["spec"].get(name) == value for name, value in wanted["spec"].items())
    return same and not is_decided(request)


def refusal(request: Object) -> str:
    """Return why the signer gives no certificate; empty while it may yet."""
    for condition in objects.status(request).get("conditions") or []:
        if condition["type"] in {"Denied", "Failed"}:
            return f"{condition['type']}: {condition.get('message') or condition.get('reason')}"
    return ""


def secret(request: CertificateRequest, certificate: bytes, now: datetime) -> Object:
    """Return the Secret that keeps ``certificate`` beside the request it answers."""
    return objects.named(
        keys.SECRET,
        request.secret,
        metadata={
            "labels": {keys.REMOTE_CLUSTER_ID: request.consumer, keys.LIQO_MANAGED: "true"},
            "annotations": {keys.ISSUED_AT: objects.timestamp(now)},
        },
        type="Opaque",
        data={
            _CSR: authentication.encoded(request.csr),
            _CERTIFICATE: authentication.encoded(certificate),
        },
    )


def is_for(found: Object, consumer: str) -> bool:
    return ownership.cluster_named_by(found) == consumer


def api_server(nodes: Iterable[Object], announced: str = "") -> str:
    """Return the URL of this cluster's API server, by the address of a control-plane node.

    It stays the one that was ``announced`` as long as such a node has that address: consumers go
    nowhere else unasked. Else a node that is ready comes first.

    Raises:
        ValueError: no node tells; the message says what to do.
    Source: docs/parity.md § 4.9, the last paragraph.
    """
    found = sorted(nodes, key=lambda node: (not _is_ready(node), str(node["metadata"]["name"])))
    planes = [
        node for label in networks.CONTROL_PLANES for node in found if label in objects.labels(node)
    ]
    if announced in {_url(address) for node in planes for address in _addresses(node).values()}:
        return announced
    for node in planes:
        if address := _address(node):
            return _url(address)
    message = f"no node with the label {networks.CONTROL_PLANES[0]} tells where the API server is"
    raise ValueError(f"{message}: say it by liqoctl install --api-server-url")


def overridden(address: str) -> str:
    return address if address.startswith("https://") else f"https://{address}"


def _url(address: str) -> str:
    return f"https://{ListenAddress(address, PORT)}"


def _is_ready(node: Object) -> bool:
    return objects.is_condition_true(objects.status(node).get("conditions"), "Ready")


def _addresses(node: Object) -> dict[str, str]:
    given = objects.status(node).get("addresses") or []
    return {str(each.get("type")): str(each.get("address")) for each in reversed(given)}


def _address(node: Object) -> str:
    by_type = _addresses(node)
    return next((by_type[type_] for type_ in _ADDRESSES if by_type.get(type_)), "")
