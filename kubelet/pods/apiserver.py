"""How an offloaded pod reaches an API server: that of its own cluster, the provider's, or none.

In mode TokenAPI the tokens that a pod mounts are those of its service account at the consumer. They
are asked for here, and lie on the provider in a Secret of that pod, from which they are mounted.

Source: docs/parity.md § 5.5.3, 6.8.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final, NamedTuple

from apis import downward, keys, naming, objects
from apis.networks import ListenAddress
from apis.objects import Key, Kind, Object
from apis.offloading import MappedNamespace

EXPIRATION_S: Final = 3600
MIN_EXPIRATION_S: Final = 600
"""The shortest that an API server grants."""
MAX_EXPIRATION_S: Final = EXPIRATION_S
"""The provider keeps what was issued for as long as that, whatever becomes of the pod. For just
3607 s, what admission writes into pods, an API server signs a token that is good for a year.
Source: docs/parity.md H10; Kubernetes, ``--service-account-extend-token-expiration``."""
MAX_TOKENS: Final = 32
"""Sources of tokens of a pod; admission writes one, and those who use more have two or three."""
REFRESHED_AT: Final = 0.8
"""The share of its life after which a token is asked for again, as kubelets do."""
JITTER_S: Final = 30
"""So much sooner or later, or the tokens of pods that were made together come together."""
SURE_S: Final = 60
"""What is mounted is good for longer: the shortest token is renewed 90 s before its end."""
NAMESPACE_KEY: Final = "namespace"
_REMOTE, _DISABLED = "remote", "disabled"


class Mode(Enum):
    """Whose API server a pod reaches."""

    DISABLED = auto()
    TOKEN_API = auto()
    REMOTE = auto()


@dataclass(frozen=True)
class ApiServer:
    """Where pods find the consumer's API server; else they are told nothing of it.

    Without a host that all know, ``addresses`` are those by which an IP fabric shows it.
    """

    is_supported: bool = False
    host: str = ""
    port: int = 443
    addresses: tuple[str, ...] = ()


NO_API_SERVER: Final = ApiServer()


class Token(NamedTuple):
    """One token that a pod mounts; ``key`` is where it lies in the Secret."""

    key: str
    audience: str
    expiration_s: int


class Issued(NamedTuple):
    """A token: the status of its TokenRequest, and when it is asked for again."""

    status: Object
    renewed: datetime


class Owner(NamedTuple):
    """With what the Secret goes: the ShadowPod, or the Pod itself, as its server has it."""

    kind: Kind
    obj: Object

    def reference(self) -> Object:
        """Return the reference to it, which holds nothing up."""
        return objects.owner_reference(self.kind, self.obj, block=False)


def mode(local: Object, server: ApiServer) -> Mode:
    """Return the mode of the pod: its annotation's, else what the virtual node supports."""
    asked = objects.annotations(local).get(keys.API_SERVER_SUPPORT, "").lower()
    if asked == _REMOTE:
        return Mode.REMOTE
    return Mode.DISABLED if asked == _DISABLED or not server.is_supported else Mode.TOKEN_API


def told_by_node(server: ApiServer) -> dict[str, str]:
    """Return the annotations by which a virtual node tells that its pods have tokens."""
    return {keys.API_SERVER_SUPPORTED: "true"} if server.is_supported else {}


def tokens(local: Object, server: ApiServer) -> list[Token]:
    """Return the tokens that the pod ``local`` mounts; [] in the other modes."""
    if mode(local, server) is not Mode.TOKEN_API:
        return []
    return [_token(volume, source) for volume, source in _sources(local)]


def refusal(local: Object, server: ApiServer) -> str:
    """Return why the pod ``local`` cannot have its tokens, "" if it can.

    Source: docs/parity.md H26.
    """
    count = len(tokens(local, server))
    if count <= MAX_TOKENS:
        return ""
    return (
        f"spec.volumes has {count} sources serviceAccountToken, on virtual nodes a pod has at most"
        f" {MAX_TOKENS}: leave out what it does not read, or annotate the pod with"
        f" {keys.API_SERVER_SUPPORT}: {_DISABLED}"
    )


def token_request(local: Object, token: Token) -> Object:
    """Return the TokenRequest: bound to the pod, so that the token ends with it."""
    reference = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": local["metadata"]["name"],
        "uid": objects.uid(local),
    }
    spec: Object = {"expirationSeconds": token.expiration_s, "boundObjectRef": reference}
    if token.audience:
        spec["audiences"] = [token.audience]
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def account(local: Object) -> Key:
    name = local["spec"].get("serviceAccountName") or "default"
    return Key(objects.key_of(local).namespace, name)


def issued(local: Object, answer: Object, now: datetime) -> Issued:
    expires = datetime.fromisoformat(str(answer["status"]["expirationTimestamp"]))
    return Issued(answer["status"], renewed_from(local, expires, now))


def secret_key(pod: Key) -> Key:
    """Return where the tokens of the pod lie, given its key on the provider."""
    return Key(pod.namespace, naming.token_secret(pod.name))


def secret(
    local: Object, owner: Owner, pair: MappedNamespace, tokens_: Mapping[str, Issued]
) -> Object:
    """Return the Secret with the tokens that were issued, by key; it goes with its ``owner``.

    Shape: the status of what is issued is {"token": str, "expirationTimestamp": str}.
    """
    key = objects.key_of(local)
    labels = {
        **pair.labels(),
        keys.NODE_NAME: objects.labels(owner.obj).get(keys.NODE_NAME, ""),
        keys.SERVICE_ACCOUNT_NAME: naming.shorten(account(local).name),
    }
    expires = min(str(one.status["expirationTimestamp"]) for one in tokens_.values())
    notes = {
        keys.FOR_POD_NAME: key.name,
        keys.FOR_POD_UID: objects.uid(local),
        keys.TOKEN_EXPIRATION: expires,
        keys.TOKEN_RENEWAL: min(one.renewed for one in tokens_.values()).isoformat(),
    }
    values = {key: str(one.status["token"]) for key, one in tokens_.items()}
    return objects.named(
        keys.SECRET,
        secret_key(pair.twin_of(key)),
        metadata={"labels": labels, "annotations": notes, "ownerReferences": [owner.reference()]},
        type="Opaque",
        stringData={**values, NAMESPACE_KEY: key.namespace},
    )


def ends_late(local: Object) -> bool:
    """Whether the terminating pod may outlive the tokens that it mounts."""
    return int(local["metadata"].get("deletionGracePeriodSeconds") or 0) > SURE_S


def renewed_from(local: Object, expires: datetime, now: datetime) -> datetime:
    """Return when the tokens of ``local`` are asked for again, granted ``now`` until ``expires``.

    What was granted counts: an API server may grant less than was asked for.
    """
    life_s = (expires - now).total_seconds()
    share = zlib.crc32(objects.uid(local).encode()) / 2**31 - 1
    jitter_s = share * min(JITTER_S, life_s * (1 - REFRESHED_AT) / 2)
    return now + timedelta(seconds=life_s * REFRESHED_AT + jitter_s)


def refresh_in_s(found: Object, now: datetime) -> float:
    """Return the seconds until the tokens in the Secret ``found`` are asked for again.

    0 too if it says more than any token lives: a clock was set back since, or it was changed.
    """
    text = objects.annotations(found).get(keys.TOKEN_RENEWAL, "")
    try:
        in_s = (datetime.fromisoformat(text) - now).total_seconds()
    except (ValueError, TypeError):
        return 0.0
    return in_s if in_s <= MAX_EXPIRATION_S else 0.0


def is_token_secret(found: Object) -> bool:
    """Whether ``found`` is such a Secret, of whatever pod."""
    return keys.FOR_POD_NAME in objects.annotations(found)


def is_of(found: Object, local: Object) -> bool:
    """Whether the Secret ``found`` is that of this very pod."""
    return objects.annotations(found).get(keys.FOR_POD_UID) == objects.uid(local)


def mutate(made: Object, local: Object, pair: MappedNamespace, server: ApiServer) -> None:
    """Let the PodSpec ``made`` reach the API server of its mode, and no other."""
    found = mode(local, server)
    if found is Mode.REMOTE:
        name = objects.annotations(local).get(keys.REMOTE_SERVICE_ACCOUNT_NAME)
        made["serviceAccountName"] = name or local["spec"].get("serviceAccountName", "")
        made["automountServiceAccountToken"] = True
        return
    made["automountServiceAccountToken"] = False
    secret_name = secret_key(pair.twin_of(objects.key_of(local))).name
    for volume in made.get("volumes") or []:
        if "projected" in volume:
            sources = volume["projected"].get("sources") or []
            tokens_of = secret_name if found is Mode.TOKEN_API else ""
            volume["projected"]["sources"] = [*_rewritten(volume["name"], sources, pair, tokens_of)]
    if found is Mode.TOKEN_API:
        _tell(made, local, server)


# Volumes -----------------------------------------------------------------------------------------


def _sources(local: Object) -> Iterator[tuple[str, Object]]:
    for volume in local["spec"].get("volumes") or []:
        for source in (volume.get("projected") or {}).get("sources") or []:
            if token := source.get("serviceAccountToken"):
                yield volume["name"], token


def _token(volume: str, source: Object) -> Token:
    seconds = int(source.get("expirationSeconds") or EXPIRATION_S)
    key = naming.token_key(volume, str(source.get("path", "")))
    asked_s = min(max(seconds, MIN_EXPIRATION_S), MAX_EXPIRATION_S)
    return Token(key, str(source.get("audience") or ""), asked_s)


def _rewritten(
    volume: str, sources: list[Object], pair: MappedNamespace, secret_name: str
) -> Iterator[Object]:
    """Yield the sources of a projected volume; ``secret_name`` is empty where no token goes.

    Beside a token of home the namespace is that of home too.
    """
    has_token = any("serviceAccountToken" in source for source in sources)
    for source in sources:
        if token := source.get("serviceAccountToken"):
            if secret_name:
                key = naming.token_key(volume, str(token.get("path", "")))
                yield _from_secret(secret_name, key, str(token.get("path", "")))
            continue
        if secret_name and has_token and "downwardAPI" in source:
            yield from _with_namespace(secret_name, source)
        else:
            yield _with_root_ca(source, pair)


def _from_secret(name: str, key: str, path: str) -> Object:
    return {"secret": {"name": name, "items": [{"key": key, "path": path}]}}


def _with_namespace(secret_name: str, source: Object) -> Iterator[Object]:
    """Yield ``source``, files of the downward API, with the namespace from the Secret."""
    items: list[Object] = source["downwardAPI"].get("items") or []
    kept = [one for one in items if not _is_namespace(one)]
    if kept or not items:
        yield {**source, "downwardAPI": {**source["downwardAPI"], "items": kept}}
    for one in items:
        if _is_namespace(one):
            yield _from_secret(secret_name, NAMESPACE_KEY, str(one.get("path", "")))


def _is_namespace(item: Object) -> bool:
    return bool((item.get("fieldRef") or {}).get("fieldPath") == downward.NAMESPACE)


def _with_root_ca(source: Object, pair: MappedNamespace) -> Object:
    reference = source.get("configMap")
    if not reference or reference.get("name") != keys.ROOT_CA_CONFIG_MAP:
        return source
    return {**source, "configMap": {**reference, "name": naming.root_ca_config_map(pair.origin)}}


# Environment -------------------------------------------------------------------------------------


def _tell(made: Object, local: Object, server: ApiServer) -> None:
    """Tell each container where the API server is; what it says itself of that stays.

    The provider turns the addresses of aliases into those by which it reaches them.
    """
    if server.addresses and not server.host:
        hostnames = [keys.API_SERVER_HOST, f"{keys.API_SERVER_HOST}.svc"]
        aliases = [{"ip": address, "hostnames": hostnames} for address in server.addresses]
        made["hostAliases"] = [*(made.get("hostAliases") or []), *aliases]
        server = replace(server, host=keys.API_SERVER_HOST)
    told = _environment(server)
    for field in ("containers", "initContainers"):
        for container in made.get(field) or []:
            own = [_with_account(one, local) for one in container.get("env") or []]
            names = {one["name"] for one in own}
            container["env"] = [*own, *(one for one in told if one["name"] not in names)]


def _with_account(variable: Object, local: Object) -> Object:
    path = ((variable.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
    if path != "spec.serviceAccountName":
        return variable
    return {"name": variable["name"], "value": account(local).name}


def _environment(server: ApiServer) -> list[Object]:
    if not server.host:
        return []
    port, address = str(server.port), f"tcp://{ListenAddress(server.host, server.port)}"
    variables = {
        "KUBERNETES_SERVICE_HOST": server.host,
        "KUBERNETES_SERVICE_PORT": port,
        "KUBERNETES_SERVICE_PORT_HTTPS": port,
        "KUBERNETES_PORT": address,
        f"KUBERNETES_PORT_{port}_TCP": address,
        f"KUBERNETES_PORT_{port}_TCP_PROTO": "tcp",
        f"KUBERNETES_PORT_{port}_TCP_ADDR": server.host,
        f"KUBERNETES_PORT_{port}_TCP_PORT": port,
    }
    return [{"name": name, "value": value} for name, value in variables.items()]
