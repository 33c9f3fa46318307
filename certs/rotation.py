"""Keeps the webhook's authority and serving certificate alive in two Secrets.

``liqo-ca`` holds the authority with its key, which nobody else mounts; ``liqo-webhook-certs`` what
the webhook serves with, and what API servers are told: whom to trust, and the door that is theirs.
"""

import base64
import binascii
import contextlib
import dataclasses
import datetime as dt
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from prometheus_client import Gauge

from apis import keys, objects
from apis.objects import Key, Object, named
from certs import bundle, pki, policy
from certs.pki import KeyPair
from certs.policy import Held
from kube import metrics
from kube.cluster import Cluster
from kube.errors import AlreadyExistsError, ConflictError, KubeError

CA_SECRET: Final = "liqo-ca"  # noqa: S105  # the name, not a secret
CA_LIFETIME: Final = dt.timedelta(days=365)
LEAF_LIFETIME: Final = dt.timedelta(days=30)
SETTLED: Final = dt.timedelta(minutes=5)
"""What a new authority waits before it signs: all API servers have its certificate by then."""
DOOR_BYTES: Final = 16
LOOK_AGAIN_S: Final = 3600.0
LOOK_SOONEST_S: Final = 1.0

_PAIRS: Final = (("tls.crt", "tls.key"), ("previous.crt", "previous.key"))
_DOOR: Final = re.compile(rb"[0-9a-f]{32}")
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
class Settings:
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
        """Return where the authority is."""
        return Key(self.namespace, CA_SECRET)

    @property
    def certs_key(self) -> Key:
        """Return where the serving certificate is."""
        return Key(self.namespace, keys.WEBHOOK_CERTS_SECRET)


class RotationReconciler:
    """Makes both Secrets, and makes them again in time. Replicas agree on what is stored."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Callable[[], dt.datetime],
        settings: Settings | None = None,
        *,
        alarm: Alarm = _log,
        known: Known = _nothing,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._settings = settings or Settings()
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

    async def _authorities(self, now: dt.datetime) -> list[KeyPair]:
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

    async def _leaf(self, where: Key, authorities: list[KeyPair], now: dt.datetime) -> bytes:
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
        trusted = bundle.merge(*ours, before, now=now)
        if not policy.is_settled(ours[0], now, self._settings.settled):
            held = dataclasses.replace(held, trusted=trusted)
        reason = policy.reason_to_replace(held, now)
        if reason or pair is None:
            pair = self._issued(authorities, now)
        wanted = {"ca.crt": trusted, "tls.crt": pair.certificate, "tls.key": pair.key}
        wanted[keys.LABELLING_DOOR] = (door_in(secret) or secrets.token_hex(DOOR_BYTES)).encode()
        if wanted != data:
            await self._store(where, secret, wanted)
            fields = {"secret": str(where), "reason": reason or "the authorities changed"}
            logger.info("Stored serving certificate", extra=fields)
            self._note("serving", pair.certificate)
        return pair.certificate

    def _issued(self, authorities: Sequence[KeyPair], now: dt.datetime) -> KeyPair:
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


def authorities_in(secret: Object | None, now: dt.datetime) -> list[KeyPair]:
    """Return the authorities in the Secret ``liqo-ca`` that hold at ``now``, the newest first."""
    data = _data(secret)
    pairs = (_pair(data, *names) for names in _PAIRS)
    return [pair for pair in pairs if pair and _holds(pair, now)]


def trusted_in(secret: Object | None) -> bytes:
    """Return the bundle in the Secret ``liqo-webhook-certs``; empty without one."""
    return _data(secret).get("ca.crt", b"")


def door_in(secret: Object | None) -> str:
    """Return the last segment of the path of the webhook that labels; empty without one."""
    found = _data(secret).get(keys.LABELLING_DOOR, b"")
    return found.decode() if _DOOR.fullmatch(found) else ""


def _holds(pair: KeyPair, now: dt.datetime) -> bool:
    try:
        begun = pki.started(pair.certificate) <= now < pki.expiry(pair.certificate)
        return begun and pki.fits_key(pair.certificate, pair.key)
    except ValueError:
        return False


def _authority_data(authorities: Sequence[KeyPair]) -> dict[str, bytes]:
    data: dict[str, bytes] = {}
    for (certificate, key), pair in zip(_PAIRS, authorities, strict=False):
        data |= {certificate: pair.certificate, key: pair.key}
    return data


def _pair(data: Mapping[str, bytes], certificate: str, key: str) -> KeyPair | None:
    found = data.get(certificate), data.get(key)
    return KeyPair(found[0], found[1]) if found[0] and found[1] else None


def _data(secret: Object | None) -> dict[str, bytes]:
    encoded = (secret or {}).get("data") or {}
    try:
        return {name: base64.b64decode(value) for name, value in encoded.items()}
    except (binascii.Error, ValueError):
        return {}
