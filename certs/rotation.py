"""Keeps the webhook's certificates alive in two Secrets, and tells API servers whom to trust.

``liqo-ca`` holds the authority with its key, which nobody else mounts; ``liqo-webhook-certs`` what
the webhook serves with, and what API servers are told, by ``clientConfig`` in both configurations:
whom to trust, and the path of the one webhook that may write, which only they know.
"""

import base64
import binascii
import contextlib
import dataclasses
import datetime as dt
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from prometheus_client import Gauge

from apis import keys, objects
from apis.objects import Key, Kind, Object, named
from certs import pki, policy
from certs.pki import Keypair
from certs.policy import Held
from kube import metrics
from kube.cluster import Cluster
from kube.errors import AlreadyExistsError, ConflictError, KubeError

CA_SECRET: Final = "liqo-ca"  # noqa: S105  # the name, not a secret
CA_LIFETIME: Final = dt.timedelta(days=365)
LEAF_LIFETIME: Final = dt.timedelta(days=30)
SETTLED: Final = dt.timedelta(minutes=5)
"""What a new authority waits before it signs: all API servers have its certificate by then."""
SECRET_PATH_BYTES: Final = 16
LOOK_AGAIN_S: Final = 3600.0
LOOK_SOONEST_S: Final = 1.0

_PAIRS: Final = (("tls.crt", "tls.key"), ("previous.crt", "previous.key"))
_SECRET_PATH: Final = re.compile(rb"[0-9a-f]{32}")
_EXPIRY: Final = Gauge(
    "pyliqo_certs_expiry_timestamp_seconds",
    "When the stored certificate ends: authority, serving",
    ["certificate"],
    registry=metrics.REGISTRY,
)
logger = logging.getLogger(__name__)

Alarm: TypeAlias = Callable[[Object, str], None]
"""Told the Secret of the serving certificate, and why one is not renewed that has to be."""

Known: TypeAlias = Callable[[], Awaitable[bytes]]
"""Returns the bundle that API servers trust now, which is asked where no Secret says it."""


async def _nothing() -> bytes:
    return b""


def _log(secret: Object, message: str) -> None:
    logger.warning(message, extra={"secret": secret["metadata"]["name"]})


@dataclass(frozen=True)
class RotationOptions:
    """For whom the certificate is, where it is kept, and how long it lives."""

    namespace: str = keys.LIQO_NAMESPACE
    service: str = keys.WEBHOOK_SERVICE
    ca_lifetime: dt.timedelta = CA_LIFETIME
    leaf_lifetime: dt.timedelta = LEAF_LIFETIME
    settled: dt.timedelta = SETTLED

    @property
    def dns(self) -> tuple[str, ...]:
        """Return the names by which API servers call the Service."""
        return (f"{self.service}.{self.namespace}.svc",)

    @property
    def ca_key(self) -> Key:
        return Key(self.namespace, CA_SECRET)

    @property
    def certs_key(self) -> Key:
        return Key(self.namespace, keys.WEBHOOK_CERTS_SECRET)


class RotationReconciler:
    """Makes both Secrets, and makes them again in time. Replicas agree on what is stored."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Callable[[], dt.datetime],
        settings: RotationOptions | None = None,
        *,
        alarm: Alarm = _log,
        known: Known = _nothing,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._settings = settings or RotationOptions()
        self._alarm, self._known = alarm, known
        self._secret: Object = named(keys.SECRET, self._settings.certs_key)
        self._stored: dict[str, bytes] = {}

    async def reconcile(self, key: Key) -> float | None:
        """Bring both Secrets up to date; ``key`` is that of the serving certificate.

        Raises:
            ConflictError: another replica was faster: look again.
        """
        now = self._clock()
        try:
            authorities = await self._authorities(now)
            leaf = await self._leaf(key, authorities, now)
        except ConflictError:
            raise
        except KubeError as error:
            self._warn(error, now)
            raise
        due = min(policy.due(leaf), policy.due(authorities[0].certificate))
        seconds = (due - now).total_seconds()
        return min(max(seconds, LOOK_SOONEST_S), LOOK_AGAIN_S)

    def _warn(self, error: KubeError, now: dt.datetime) -> None:
        for what, certificate in self._stored.items():
            if policy.due(certificate) <= now:
                ends = objects.timestamp(pki.expiry(certificate))
                message = f"the {what} certificate ends at {ends} and is not renewed: {error}"
                self._alarm(self._secret, message)

    def _note(self, what: str, certificate: bytes) -> None:
        with contextlib.suppress(ValueError):
            _EXPIRY.labels(what).set(pki.expiry(certificate).timestamp())
            self._stored[what] = certificate

    async def _authorities(self, now: dt.datetime) -> list[Keypair]:
        where = self._settings.ca_key
        secret = await self._cluster.get_live(keys.SECRET, where)
        held = authorities_in(secret, now)
        if held:
            self._note("authority", held[0].certificate)
        reason = policy.reason_to_replace_ca(held[0] if held else None, now)
        if reason is None:
            return held
        name = f"liqo-webhook-ca-{now:%Y%m%dT%H%M%S}"
        fresh = [pki.new_ca(name, now=now, lifetime=self._settings.ca_lifetime), *held[:1]]
        try:
            await self._store(where, secret, _authority_data(fresh))
        except AlreadyExistsError:  # another replica made it first: that one counts for all
            return await self._authorities(now)
        self._note("authority", fresh[0].certificate)
        logger.info("Made certificate authority", extra={"secret": str(where), "reason": reason})
        return fresh

    async def _leaf(self, where: Key, authorities: list[Keypair], now: dt.datetime) -> bytes:
        secret = await self._cluster.get_live(keys.SECRET, where)
        data = _data(secret)
        self._secret = secret or self._secret
        ours = [one.certificate for one in authorities]
        pair = _pair(data, *_PAIRS[0])
        if pair is not None:
            self._note("serving", pair.certificate)
        held = Held(pair, b"".join(ours), self._settings.dns)
        is_left = policy.is_served(held, now, self._settings.settled)
        before = b"" if is_left else data.get("ca.crt") or await self._known()
        trusted = pki.merged_bundle(*ours, before, now=now)
        if not policy.is_settled(ours[0], now, self._settings.settled):
            held = dataclasses.replace(held, trusted=trusted)
        reason = policy.reason_to_replace(held, now)
        if reason or pair is None:
            pair = self._issued(authorities, now)
        wanted = {"ca.crt": trusted, "tls.crt": pair.certificate, "tls.key": pair.key}
        wanted[keys.LABELLING_DOOR] = (
            secret_path_in(secret) or secrets.token_hex(SECRET_PATH_BYTES)
        ).encode()
        if wanted != data:
            await self._store(where, secret, wanted)
            fields = {"secret": str(where), "reason": reason or "the authorities changed"}
            logger.info("Stored serving certificate", extra=fields)
            self._note("serving", pair.certificate)
        return pair.certificate

    def _issued(self, authorities: Sequence[Keypair], now: dt.datetime) -> Keypair:
        settings = self._settings
        return pki.issue(
            policy.signer(authorities, now, settings.settled),
            common_name=settings.dns[0],
            dns=settings.dns,
            server=True,
            now=now,
            lifetime=settings.leaf_lifetime,
        )

    async def _store(self, where: Key, found: Object | None, data: Mapping[str, bytes]) -> None:
        """Write ``data``, and nothing else, if nobody wrote since ``found`` was read."""
        encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
        metadata: Object = {
            "labels": {keys.WEBHOOK_LABEL: "true", keys.LIQO_MANAGED: "true"},
            "annotations": {keys.WEBHOOK_SERVICE_NAME: self._settings.service},
        }
        if found is None:
            secret = named(keys.SECRET, where, metadata=metadata, type="Opaque", data=encoded)
            await self._cluster.create(keys.SECRET, secret)
            return
        metadata["resourceVersion"] = found["metadata"]["resourceVersion"]
        gone = {name: None for name in found.get("data") or {} if name not in encoded}
        changes: Object = {"metadata": metadata, "data": {**gone, **encoded}}
        await self._cluster.patch(keys.SECRET, where, changes)


def authorities_in(secret: Object | None, now: dt.datetime) -> list[Keypair]:
    """Return the authorities in the Secret ``liqo-ca`` that hold at ``now``, the newest first."""
    data = _data(secret)
    pairs = (_pair(data, *names) for names in _PAIRS)
    return [pair for pair in pairs if pair and _holds(pair, now)]


def trusted_in(secret: Object | None) -> bytes:
    """Return the bundle in the Secret ``liqo-webhook-certs``; empty without one."""
    return _data(secret).get("ca.crt", b"")


def secret_path_in(secret: Object | None) -> str:
    """Return the last segment of the path of the webhook that labels; empty without one."""
    found = _data(secret).get(keys.LABELLING_DOOR, b"")
    return found.decode() if _SECRET_PATH.fullmatch(found) else ""


def _holds(pair: Keypair, now: dt.datetime) -> bool:
    try:
        begun = pki.started(pair.certificate) <= now < pki.expiry(pair.certificate)
        return begun and pki.fits_key(pair.certificate, pair.key)
    except ValueError:
        return False


def _authority_data(authorities: Sequence[Keypair]) -> dict[str, bytes]:
    data: dict[str, bytes] = {}
    for (certificate, key), pair in zip(_PAIRS, authorities, strict=False):
        data |= {certificate: pair.certificate, key: pair.key}
    return data


def _pair(data: Mapping[str, bytes], certificate: str, key: str) -> Keypair | None:
    found = data.get(certificate), data.get(key)
    return Keypair(found[0], found[1]) if found[0] and found[1] else None


def _data(secret: Object | None) -> dict[str, bytes]:
    encoded = (secret or {}).get("data") or {}
    try:
        return {name: base64.b64decode(value) for name, value in encoded.items()}
    except (binascii.Error, ValueError):
        return {}


# What API servers are told ------------------------------------------------------------------------

INJECTION_MANAGER: Final = "liqo-injection"


class InjectionReconciler:
    """Keeps what ``clientConfig`` says of one configuration equal to what is stored."""

    def __init__(self, cluster: Cluster, kind: Kind, certs_key: Key) -> None:
        self._cluster = cluster
        self._kind = kind
        self._certs_key = certs_key

    async def reconcile(self, key: Key) -> float | None:
        """Bring the configuration at ``key`` up to date; wait for an event while it is absent."""
        configuration = await self._cluster.get(self._kind, key)
        secret = await self._cluster.get(keys.SECRET, self._certs_key)
        trusted = trusted_in(secret)
        if configuration is None or not trusted:
            return None
        wanted = injected(self._kind, configuration, trusted, secret_path_in(secret))
        if wanted is not None:
            await self._cluster.apply(self._kind, wanted, manager=INJECTION_MANAGER)
            fields = {"kind": self._kind.kind, "configuration": key.name}
            logger.info("Injected certificate authorities", extra=fields)
        return None


async def trusted_by_api_servers(cluster: Cluster, kinds: Iterable[Kind], key: Key) -> bytes:
    """Return whom the API servers trust at the webhooks of the configurations at ``key``."""
    found = [await cluster.get_live(kind, key) for kind in kinds]
    hooks = [hook for one in found if one for hook in one.get("webhooks") or []]
    bundles = dict.fromkeys((hook.get("clientConfig") or {}).get("caBundle") for hook in hooks)
    return b"".join(_decoded(bundle or "") for bundle in bundles)


def _decoded(bundle: str) -> bytes:
    try:
        return base64.b64decode(bundle)
    except binascii.Error:
        return b""


def injected(
    kind: Kind, configuration: Object, trusted: bytes, secret_path: str = ""
) -> Object | None:
    """Return what to apply so that all webhooks are called right; None when they are. Pure."""
    bundle = base64.b64encode(trusted).decode()
    hooks = configuration.get("webhooks") or []
    wanted = {
        hook["name"]: {"caBundle": bundle, **_path(hook["name"], secret_path)} for hook in hooks
    }
    if all(_has(hook.get("clientConfig") or {}, wanted[hook["name"]]) for hook in hooks):
        return None
    key = Key("", configuration["metadata"]["name"])
    applied = [{"name": name, "clientConfig": client} for name, client in wanted.items()]
    return named(kind, key, webhooks=applied)


def _path(hook: str, secret_path: str) -> Object:
    """Return where the webhook that labels is called; of the others the manifests say it."""
    if hook != keys.LABELLING_WEBHOOK or not secret_path:
        return {}
    return {"service": {"path": f"{keys.LABELLING_PATH}/{secret_path}"}}


def _has(client: Object, wanted: Object) -> bool:
    path = (client.get("service") or {}).get("path")
    is_path = "service" not in wanted or path == wanted["service"]["path"]
    return bool(is_path and client.get("caBundle") == wanted["caBundle"])
