"""Fills the Secrets ``liqo-nonce`` and ``liqo-signed-nonce`` of tenant namespaces, by their names.

Source: docs/parity.md § 2.5, 4.8; SEC-A10, SEC-A11.
"""

import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from apis import authentication, keys, objects, ownership
from apis.objects import Key, Object
from certs import identity, pki
from controllers import watches, writes
from controllers.manager import Controller, Manager
from kube.controller import WatchSource
from kube.informer import Change

_NONCE: Final = "nonce"
_SIGNED: Final = "signedNonce"

logger = logging.getLogger(__name__)


class NonceReconciler(Controller):
    """One Secret of one of the two names; every other Secret is somebody else's."""

    name = "nonce"

    def __init__(
        self, manager: Manager, dice: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        super().__init__(manager)
        self._dice = dice

    def watches(self) -> Sequence[WatchSource[Any]]:
        return (
            self.watch(watches.SECRETS, _so_named),
            self.watch(watches.PEER_NAMESPACES, _inside),
        )

    async def reconcile(self, key: Key) -> float | None:
        works = {
            keys.NONCE_SECRET: (keys.NONCE_LABEL, self._make),
            keys.SIGNED_NONCE_SECRET: (keys.SIGNED_NONCE_LABEL, self._sign),
        }
        if key.name not in works:
            return None
        label, work = works[key.name]
        secret = (await self.all(watches.SECRETS)).get(key)
        if secret is None or objects.is_terminating(secret):
            return None
        peer = await watches.peer_in(self.cached, key.namespace)
        if not peer or objects.labels(secret).get(label) != "true":
            return None
        return await work(secret, peer)

    async def _make(self, secret: Object, consumer: str) -> float | None:
        """Fill the Secret, and take it away once its time is over: ten minutes."""
        now = self.clock()
        text = _read(secret, _NONCE)
        if not text:
            text = authentication.nonce_text(
                consumer, self.manager.cluster_id, self._dice(authentication.NONCE_BYTES), now
            )
            await self._write(secret, _NONCE, text.encode())
            logger.info("Made a nonce", extra={"cluster": consumer})
        if not authentication.nonce_has_ended(text, now):
            return authentication.NONCE_LIFETIME.total_seconds()
        await writes.remove(
            self.cached,
            keys.SECRET,
            objects.key_of(secret),
            is_ours=lambda found: _read(found, _NONCE) == text,
        )
        return None

    async def _sign(self, secret: Object, provider: str) -> float | None:
        text = _read(secret, _NONCE)
        if not text or not self._needs_signature(secret, text):
            return None
        why = authentication.reason_not_to_sign(
            text, self.manager.cluster_id, provider, self.clock()
        )
        if why:
            self.events.event(keys.SECRET, secret, "Warning", "NonceNotSigned", f"nonce: {why}")
            return None
        await self._write(secret, _SIGNED, identity.sign(self.manager.private_key, text.encode()))
        logger.info("Signed a nonce", extra={"cluster": provider})
        return None

    def _needs_signature(self, secret: Object, text: str) -> bool:
        try:
            found = authentication.decoded(secret.get("data") or {}, _SIGNED)
        except ValueError:
            return True
        public = pki.public_key(self.manager.private_key)
        return not identity.is_signed(public, text.encode(), found)

    async def _write(self, secret: Object, field_: str, data: bytes) -> None:
        changes = {
            "metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]},
            "data": {field_: authentication.encoded(data)},
        }
        await self.cached.patch(keys.SECRET, objects.key_of(secret), changes)


def _read(secret: Object, field_: str) -> str:
    try:
        return authentication.decoded(secret.get("data") or {}, field_).decode("ascii")
    except (ValueError, UnicodeError):
        return ""


# Which Secrets hold nonces: those of two names, in tenant namespaces only ------------------------


_NAMES: Final = (keys.NONCE_SECRET, keys.SIGNED_NONCE_SECRET)


def _so_named(change: Change[Object]) -> Iterable[Key]:
    return [change.key] if change.key.name in _NAMES else []


def _inside(change: Change[Object]) -> Iterable[Key]:
    if not any(ownership.peer_of(each) for each in (change.old, change.new) if each):
        return []  # twins hold the Secrets of others
    return [Key(change.key.name, name) for name in _NAMES]
