"""The objects that two clusters exchange to peer, as manifests. Pure.

Source: docs/parity.md § 2.5, 7.4-7.6, 8.3, SEC-B4; H19; docs/decisions/0013 (12).
"""

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from apis import authentication, keys, naming, objects
from apis.authentication import AuthParams, Grant
from apis.networks import Address, is_special_address, reached_addresses
from apis.objects import Key, Kind, Object

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
    if networks:
        return f"pods of the provider are in {networks}"
    return (
        "the provider names no networks of its pods, so their addresses are not published: "
        "add --provider-pod-cidr"
    )


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
    from certs import identity as certs_identity

    public = authentication.decoded(objects.spec(tenant_), "publicKey")
    if tenant_ is None or not public or certs_identity.is_public_key_of(public, key):
        return ""
    where = objects.key_of(tenant_)
    return (
        f"tenant {where}: it is that of another cluster called {where.name}, by its public key: "
        "liqoctl unpeer there first, or add --replace if it is the same one, with a new key"
    )


def is_let_in(tenant_: Object | None) -> bool:
    return bool(params_of(tenant_)) and is_ready(tenant_) == "True"


def is_let_in_now(tenant_: Object | None, now: datetime) -> bool:
    """Whether the consumer is let in, by a certificate that has not ended."""
    from certs import pki

    if not is_let_in(tenant_):
        return False
    try:
        return pki.expiry(AuthParams.parse(params_of(tenant_)).certificate) > now
    except ValueError:
        return False


def params_of(obj: Object | None) -> Object:
    params: Object = objects.status(obj).get("authParams") or {}
    return params


def is_ready(tenant_: Object | None) -> str:
    """Return the status of ``Ready`` for the spec as it is now; empty before it is observed.

    A provider that runs Liqo writes no conditions: there, the certificate says yes.
    """
    if not _conditions(tenant_):
        return "True" if _is_certified(tenant_ or {}) else ""
    found = _condition(tenant_, "Ready")
    generation = ((tenant_ or {}).get("metadata") or {}).get("generation")
    return str(found.get("status", "")) if found.get("observedGeneration") == generation else ""


def _is_certified(tenant_: Object) -> bool:
    """Whether there is a certificate for the key that the Tenant names now."""
    from certs import identity as certs_identity

    try:
        certificate = AuthParams.parse(params_of(tenant_)).certificate
        public = authentication.decoded(objects.spec(tenant_), "publicKey")
    except ValueError:
        return False
    return bool(certificate) and certs_identity.is_certified(certificate, public)


def is_judged(tenant_: Object | None) -> bool:
    """Whether the provider has said yes or no to the Tenant as it is now."""
    return is_let_in(tenant_) or is_ready(tenant_) == "False"


def is_judged_unlike(before: Object | None) -> Callable[[Object | None], bool]:
    return lambda tenant_: is_judged(tenant_) and _conditions(tenant_) != _conditions(before)


def complaint(tenant_: Object | None) -> str:
    """Return why the consumer is not let in, as far as the provider says."""
    found = _condition(tenant_, "Ready")
    return f"{found.get('reason')}: {found.get('message')}" if found else "nothing is said yet"


def _condition(obj: Object | None, type_: str) -> Object:
    return objects.find_condition(_conditions(obj), type_) or {}


def _conditions(obj: Object | None) -> list[Object]:
    return objects.status(obj).get("conditions") or []


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


# Whether the API server and the proxy that a provider announces may be used -----------------------
# What is stored at peering, the consumer's controllers connect to from inside its network, with its
# certificate.

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

SERVER_FLAG: Final = "--provider-server"
PROXY_FLAG: Final = "--proxy-url"
_PORTS: Final = {"https": 443, "http": 80}


class Verdict(Enum):
    """What is to be done about what a provider announces."""

    OK = "ok"
    ASK = "ask"
    REFUSE = "refuse"


class CheckedServer(NamedTuple):
    """A verdict; where it is not OK, why, and the flag that would name what is announced."""

    verdict: Verdict
    why: str = ""
    flag: str = ""


@dataclass(frozen=True)
class Entrance:
    """Where one gets in: URLs, the proxy's empty for none."""

    server: str
    proxy: str = ""


@dataclass(frozen=True)
class Consumer:
    """What the consumer knows: its administrator's word, and its own addresses."""

    kubeconfig: Entrance
    """Of the provider, in the administrator's hand."""
    named: Entrance
    """By flags; empty without one."""
    own: frozenset[str] = frozenset()
    """Addresses of its nodes and API servers."""
    networks: tuple[str, ...] = ()
    """Of its pods and Services."""
    resolved: Mapping[str, Iterable[str]] = field(default_factory=dict)
    """The addresses of the names that are announced, as this machine resolves them."""


def judge(announced: Entrance, consumer: Consumer) -> CheckedServer:
    """Return whether the consumer's controllers may connect to what is ``announced``."""
    found = [
        _one(SERVER_FLAG, "API server", announced.server, consumer),
        _one(PROXY_FLAG, "proxy", announced.proxy, consumer),
    ]
    order = [Verdict.REFUSE, Verdict.ASK, Verdict.OK]
    return min(found, key=lambda each: order.index(each.verdict))


def host(url: str) -> str:
    """Return the host of ``url``; empty where it has none, or cannot be read."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _one(flag: str, what: str, url: str, consumer: Consumer) -> CheckedServer:
    known, named = (
        each.server if flag == SERVER_FLAG else each.proxy
        for each in (consumer.kubeconfig, consumer.named)
    )
    if (not url and flag == PROXY_FLAG) or (known and _place(url) == _place(known)):
        return CheckedServer(Verdict.OK)
    said = f"the {what} that the provider announces is {url or 'none'!r}"
    if not host(url):
        return CheckedServer(Verdict.REFUSE, f"{said}, which names no host", flag)
    is_named = bool(named) and _place(url) == _place(named)
    if reason := _refusal(url, consumer, () if is_named else consumer.networks):
        return CheckedServer(Verdict.REFUSE, f"{said}, {reason}", flag)
    if is_named:
        return CheckedServer(Verdict.OK)
    return CheckedServer(
        Verdict.ASK, f"{said}, that of the kubeconfig is {known or 'none'!r}", flag
    )


def _place(url: str) -> tuple[str, str, int | None, str]:
    """Return what two URLs of one server have in common."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return (url, "", None, "")
    return parts.scheme, (parts.hostname or "").rstrip("."), port, parts.path.rstrip("/")


def _refusal(url: str, consumer: Consumer, networks: Iterable[str]) -> str:
    """Return why no consumer should connect there; empty if it may."""
    name = host(url)
    found = [*consumer.resolved.get(name, ()), name]
    if name == "localhost" or name.endswith(".localhost"):
        return "the machine itself"
    own = {_address(each) for each in consumer.own} - {None}
    closed = list(_networks(networks))
    named = [parsed for each in found if (parsed := _address(each))]
    for address in [end for each in named for end in reached_addresses(each)]:
        if reason := _special(address):
            return reason
        if address in own:
            return "a node or an API server of the consumer"
        if any(address in network for network in closed):
            return "inside the consumer's pod or Service networks"
    return ""


def _special(address: Address) -> str:
    if address.is_loopback or address.is_unspecified:
        return "the machine itself"
    if address.is_link_local:
        return "a link-local address"
    if address.is_multicast:
        return "a multicast address"
    return "an address that no server has" if is_special_address(address) else ""


def _address(text: str) -> Address | None:
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _networks(texts: Iterable[str]) -> Iterable[Network]:
    for text in texts:
        try:
            yield ipaddress.ip_network(text, strict=False)
        except ValueError:
            continue


# A user that may do on a provider what ``liqoctl peer`` needs, for one consumer -------------------

TENANT_ROLE: Final = "liqo-peering-user-tenant-ns"
LIQO_ROLE: Final = "liqo-peering-user-liqo-ns"
RANDOM_BYTES: Final = 16


def user(consumer: str, dice: bytes) -> str:
    return naming.peering_user(consumer, dice.hex())


def signing_request(request: bytes, consumer: str, name: str, lifetime: timedelta) -> Object:
    return {
        "apiVersion": keys.CERTIFICATE_SIGNING_REQUEST.api_version,
        "kind": keys.CERTIFICATE_SIGNING_REQUEST.kind,
        "metadata": {"generateName": "liqo-peering-user-", "labels": _labels(consumer, name)},
        "spec": {
            "request": authentication.encoded(request),
            "signerName": keys.CLIENT_SIGNER,
            "usages": ["digital signature", "key encipherment", "client auth"],
            "expirationSeconds": int(lifetime.total_seconds()),
        },
    }


def approval(request: Object, moment: str) -> Object:
    """Return the merge patch by which an administrator approves ``request``."""
    condition = {
        "type": "Approved",
        "status": "True",
        "reason": "PeeringUser",
        "message": "liqoctl generate peering-user",
        "lastUpdateTime": moment,
        "lastTransitionTime": moment,
    }
    version = {"resourceVersion": request["metadata"]["resourceVersion"]}
    return {"metadata": version, "status": {"conditions": [condition]}}


def grants(consumer: str, name: str, namespace: str, liqo: str) -> list[Grant]:
    """Return the bindings of the user: in the consumer's tenant namespace, and in pyliqo's own."""
    metadata = {"labels": _labels(consumer, name)}
    user = authentication.subject("User", name)
    own = Key(liqo, naming.shorten(f"{LIQO_ROLE}-{consumer}"))
    return [
        authentication.binding(Key(namespace, TENANT_ROLE), metadata, user, TENANT_ROLE),
        authentication.binding(own, metadata, user, LIQO_ROLE, keys.ROLE),
    ]


def selector(consumer: str) -> str:
    return f"{keys.PEERING_USER_NAME},{keys.REMOTE_CLUSTER_ID}={consumer}"


def _labels(consumer: str, name: str) -> dict[str, str]:
    return {keys.REMOTE_CLUSTER_ID: consumer, keys.PEERING_USER_NAME: naming.shorten(name)}
