"""Our kinds of ``authentication.liqo.io`` that identities are made of, and the nonces for them.

A provider's nonce says who may sign it, for whom, and until when. It is text, so that a signature
of it is never one of a certificate request; peers that run Liqo sign it as the word it is to them.
Source: docs/parity.md § 2.4, 2.5, 4.8; SEC-A10.
"""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from apis import keys, objects
from apis.objects import Key, Kind, Meta, Object

_OUR_ROLES: Final = frozenset(
    {
        keys.REMOTE_CONTROLPLANE_ROLE,
        keys.VIRTUAL_KUBELET_REMOTE_ROLE,
        keys.VIRTUAL_KUBELET_REMOTE_CLUSTERWIDE_ROLE,
    }
)
"""A binding to one of these gives a consumer what every consumer gets, no matter who made it."""


class Binding(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """A RoleBinding or ClusterRoleBinding: whom it gives which role, and nothing else."""

    metadata: Meta
    role_ref: dict[str, Any] = {}
    subjects: list[dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        for name in ("role_ref", "subjects"):  # the same of thousands
            msgspec.structs.force_setattr(self, name, objects.shared(getattr(self, name)))

    @classmethod
    def of(cls, obj: Object) -> "Binding":
        return msgspec.convert(obj, cls)

    def names(self) -> set[str]:
        """Return the users and groups that it gives rights to."""
        users = ("User", "Group")
        return {str(one.get("name")) for one in self.subjects or () if one.get("kind") in users}

    def account_namespaces(self) -> set[str]:
        """Return the namespaces to whose ServiceAccounts it gives rights, by whatever subject."""
        found = {
            str(one.get("namespace"))
            for one in self.subjects or ()
            if one.get("kind") == "ServiceAccount"
        }
        for name in self.names():
            for prefix in ("system:serviceaccounts:", "system:serviceaccount:"):
                if name.startswith(prefix):
                    found.add(name.removeprefix(prefix).partition(":")[0])
        return found


class Grant(NamedTuple):
    """One object that grants something."""

    kind: Kind
    wanted: Object


def binding(
    key: Key, metadata: Object, subject: Object, role: str, role_kind: Kind = keys.CLUSTER_ROLE
) -> Grant:
    """Return the binding of ``subject`` to ``role``, for the whole cluster without a namespace."""
    kind = keys.ROLE_BINDING if key.namespace else keys.CLUSTER_ROLE_BINDING
    reference = {"apiGroup": keys.RBAC_GROUP, "kind": role_kind.kind, "name": role}
    made = {"metadata": metadata, "subjects": [subject], "roleRef": reference}
    return Grant(kind, objects.named(kind, key, **made))


def subject(kind: str, name: str) -> Object:
    """Return the ``User`` or ``Group`` called ``name``."""
    return {"apiGroup": keys.RBAC_GROUP, "kind": kind, "name": name}


def account_subject(account: Key) -> Object:
    return {"kind": "ServiceAccount", "namespace": account.namespace, "name": account.name}


class TenantCondition(Enum):
    """What a consumer may still do."""

    ACTIVE = "Active"
    CORDONED = "Cordoned"
    DRAINED = "Drained"


class IdentityType(Enum):
    """Whose identity it is."""

    CONTROL_PLANE = "ControlPlane"
    RESOURCE_SLICE = "ResourceSlice"


@dataclass(frozen=True)
class AuthParams:
    """How a consumer gets in."""

    api_server: str
    ca: bytes = b""
    """Empty where the API server's certificate is publicly trusted."""
    certificate: bytes = b""
    proxy_url: str = ""

    @classmethod
    def parse(cls, params: Object | None) -> "AuthParams":
        """Return what ``params`` says.

        Raises:
            ValueError: a field is not what it should be; the message names it.
        """
        said = params or {}
        return cls(
            api_server=str(said.get("apiServer") or ""),
            ca=decoded(said, "ca"),
            certificate=decoded(said, "signedCRT"),
            proxy_url=str(said.get("proxyURL") or ""),
        )

    def shown(self) -> Object:
        """Return it as it stands in a spec or status; ``parse`` is the inverse."""
        fields = {
            "apiServer": self.api_server,
            "ca": encoded(self.ca),
            "signedCRT": encoded(self.certificate),
            "proxyURL": self.proxy_url,
        }
        return {name: value for name, value in fields.items() if value}

    def is_same_server(self, trusted: "AuthParams") -> bool:
        """Whether this leads where ``trusted`` does, by authorities that follow those of it."""
        where = (self.api_server, self.proxy_url)
        return where == (trusted.api_server, trusted.proxy_url) and follows(self.ca, trusted.ca)


@dataclass(frozen=True)
class Tenant:
    """A consumer, as the provider knows it."""

    cluster_id: str
    condition: TenantCondition = TenantCondition.ACTIVE
    has_handshake: bool = True
    """False by the policy TolerateNoHandshake: no key, no certificate."""
    public_key: bytes = b""
    csr: bytes = b""
    signature: bytes = field(default=b"", repr=False)
    proxy_url: str = ""
    announced: str = ""
    """The URL of the API server that the consumer was told last."""

    @classmethod
    def parse(cls, obj: Object) -> "Tenant":
        """Return what ``obj`` says, with the defaults of its CRD.

        Raises:
            ValueError: a field is not what it should be; the message names it.
        """
        spec = objects.spec(obj)
        return cls(
            cluster_id=str(spec.get("clusterID") or ""),
            condition=TenantCondition(spec.get("tenantCondition") or "Active"),
            has_handshake=spec.get("authzPolicy") != "TolerateNoHandshake",
            public_key=decoded(spec, "publicKey"),
            csr=decoded(spec, "csr"),
            signature=decoded(spec, "signature"),
            proxy_url=str(spec.get("proxyURL") or ""),
            announced=str((objects.status(obj).get("authParams") or {}).get("apiServer") or ""),
        )


@dataclass(frozen=True)
class Identity:
    """How this cluster signs in to a provider."""

    name: str
    cluster_id: str
    type: IdentityType
    params: AuthParams
    namespace: str = ""
    """The tenant namespace on the provider; of a control plane only."""

    @classmethod
    def parse(cls, obj: Object) -> "Identity":
        """Return what ``obj`` says.

        Raises:
            ValueError: a field is not what it should be; the message names it.
        """
        spec = objects.spec(obj)
        return cls(
            name=obj["metadata"]["name"],
            cluster_id=str(spec.get("clusterID") or ""),
            type=IdentityType(spec.get("type")),
            params=AuthParams.parse(spec.get("authParams")),
            namespace=str(spec.get("namespace") or ""),
        )


def collides(cluster_id: str, binding: Binding) -> bool:
    """Whether a certificate for ``cluster_id`` would get what ``binding`` gives to somebody else.

    Source: docs/parity.md § 3.6, 4.9; SEC-A9.
    """
    role = binding.role_ref
    is_ours = role.get("kind") == "ClusterRole" and role.get("name") in _OUR_ROLES
    return not is_ours and cluster_id in binding.names()


def is_reserved(cluster_id: str) -> bool:
    """Whether ``cluster_id`` looks like a user or group of Kubernetes itself."""
    return cluster_id.startswith("system:")


def encoded(data: bytes) -> str:
    """Return ``data`` as a field of format ``byte``."""
    return base64.b64encode(data).decode()


def decoded(fields: Any, name: str) -> bytes:
    """Return the bytes in the field ``name``, none where it is not there.

    Raises:
        ValueError: it is not base64.
    """
    try:
        return base64.b64decode(fields.get(name) or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ValueError(f"{name} is not base64") from None


def certificates(bundle: bytes) -> list[bytes]:
    """Return the certificates in ``bundle``, each as PEM that ends with a newline."""
    return [found.replace(b"\r", b"") + b"\n" for found in _CERTIFICATE.findall(bundle)]


def follows(ca: bytes, trusted: bytes) -> bool:
    """Whether the bundle ``ca`` has an authority of ``trusted``, as while one is replaced.

    So a cluster that takes each such bundle goes on when the first authority is gone.
    """
    known, said = (frozenset(certificates(each)) for each in (trusted, ca))
    if not known or not said:
        return ca.strip() == trusted.strip()
    return bool(known & said) and len(said) <= MOST_AUTHORITIES


MOST_AUTHORITIES: Final = 16
"""In the bundle of one cluster: the one before, the one after, and some beside."""
_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----\s.*?-----END CERTIFICATE-----", re.DOTALL
)


# What a consumer signs to prove who it is ---------------------------------------------------------

NONCE_LIFETIME: Final = timedelta(minutes=10)
_OWN_SKEW: Final = timedelta(minutes=1)
"""By which the clocks of a provider's own controllers may differ."""
NONCE_BYTES: Final = 32
_PREFIX: Final = "pyliqo-nonce-v1"
_MAX_LENGTH: Final = 512
_FIELDS: Final = 5
_MAX_DIGITS: Final = 20
_LIQO_BYTES: Final = 64


def nonce_text(consumer: str, provider: str, dice: bytes, now: datetime) -> str:
    """Return a nonce that ``consumer`` may sign for ``provider`` in the next ten minutes.

    Shape: ``pyliqo-nonce-v1/<consumer>/<provider>/<end, seconds since 1970>/<hex>``.
    """
    end = int((now + NONCE_LIFETIME).timestamp())
    return f"{_PREFIX}/{consumer}/{provider}/{end}/{dice.hex()}"


def nonce_problem(
    nonce: str, consumer: str, provider: str, now: datetime, *, skew: timedelta = _OWN_SKEW
) -> str:
    """Return why ``nonce`` is not one that ``consumer`` may use at ``provider`` now; "" if it is.

    It names what is wrong and never the nonce. ``skew``: how far ahead the clock may be that made
    it.
    """
    fields = nonce.split("/") if len(nonce) <= _MAX_LENGTH else []
    if len(fields) != _FIELDS or fields[0] != _PREFIX or not _is_hex(fields[4]):
        return "it is not a nonce of this provider"
    if fields[1:3] != [consumer, provider]:
        return f"it was made for {fields[1]!r} at {fields[2]!r}, not for {consumer} at {provider}"
    left_s = _left_s(nonce, now)
    if left_s is None or left_s <= 0:
        return "it is older than ten minutes"
    is_ours = left_s <= (NONCE_LIFETIME + skew).total_seconds()
    return (
        "" if is_ours else "it ends later than ten minutes from now: no provider makes such a one"
    )


def nonce_has_ended(nonce: str, now: datetime) -> bool:
    """Whether ``nonce`` is one of ours whose time is over, or none that we could have made."""
    left_s = _left_s(nonce, now)
    return left_s is None or not 0 < left_s <= (NONCE_LIFETIME + _OWN_SKEW).total_seconds()


def reason_not_to_sign(nonce: str, consumer: str, provider: str, now: datetime) -> str:
    """Return why ``consumer`` does not sign what came as a nonce of ``provider``; "" if it does.

    What Liqo makes is signed too: base64 of exactly 64 bytes, which is nothing else by chance. The
    clock of the provider may be as far ahead of ours as it may be behind it.
    """
    return (
        ""
        if _is_liqos(nonce)
        else nonce_problem(nonce, consumer, provider, now, skew=NONCE_LIFETIME)
    )


def nonce_fingerprint(data: bytes) -> str:
    """Return what stands for ``data`` where it may be read by others."""
    return hashlib.sha256(data).hexdigest()[:32]


def _left_s(nonce: str, now: datetime) -> float | None:
    """Return the seconds that ``nonce`` has left; None for what says none."""
    fields = nonce.split("/")
    if len(fields) != _FIELDS or not (fields[3].isascii() and fields[3].isdecimal()):
        return None
    return int(fields[3][:_MAX_DIGITS]) - now.timestamp()


def _is_liqos(nonce: str) -> bool:
    if len(nonce) > _MAX_LENGTH:
        return False
    try:
        return len(base64.b64decode(nonce, validate=True)) == _LIQO_BYTES
    except (binascii.Error, ValueError):
        return False


def _is_hex(word: str) -> bool:
    return len(word) == 2 * NONCE_BYTES and set(word) <= set("0123456789abcdef")
