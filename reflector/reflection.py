"""The one algorithm that keeps twins, and the table of the kinds it keeps.

Source: behaviour.md 6.1, 6.11; security.md B6, B9.
"""

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from apis import keys, objects
from apis.objects import Key, Kind, Object
from apis.offloading import ReflectionPolicy as Policy
from apis.pairs import Pair
from kube import errors
from kube.cache import CachedCluster
from kube.reconcile import TerminalError
from reflector import policy
from reflector.forge import configmap, secret, service, twins

logger = logging.getLogger(__name__)

SUCCESSFUL: Final = "SuccessfulReflection"
FAILED: Final = keys.FAILED_REFLECTION
DISABLED: Final = "ReflectionDisabled"

FOREIGN_RETRY_S: Final = 300.0
"""Somebody else's object is not in our watch; so look now and then whether it has gone."""
STALE_RETRY_S: Final = 1.0
TERMINATING_RETRY_S: Final = 5.0
_TERMINATING: Final = "being terminated"
_ANOTHER: Final = "metadata.uid"
"""What the server finds invalid when a namesake has taken the place of the object we meant."""


def _same(name: str, _pair: Pair) -> str:
    return name


@dataclass(frozen=True)
class Forge:
    """How a kind is reflected; the fields ``exact`` alone say whether a twin is current."""

    remote: Callable[[Object, Pair, twins.Settings], Object]
    exact: tuple[str, ...] = ()
    twin_name: Callable[[str, Pair], str] = _same
    original_name: Callable[[str, Pair], str] = _same
    selector: tuple[str, ...] = ()
    """What besides the pair's labels tells twins from what others keep under the same labels."""


FORGES: Final[dict[Kind, Forge]] = {
    keys.CONFIG_MAP: Forge(
        configmap.remote, configmap.FIELDS, configmap.twin_name, configmap.original_name
    ),
    keys.SECRET: Forge(secret.remote, secret.FIELDS, selector=(f"!{keys.SERVICE_ACCOUNT_NAME}",)),
    keys.SERVICE: Forge(service.remote),
}


class Tell(Protocol):
    """Records an Event on a local object."""

    def __call__(
        self, obj: Object, type_: Literal["Normal", "Warning"], reason: str, message: str, /
    ) -> None:
        """Return at once; a reason that was just told may be dropped."""
        ...


@dataclass(frozen=True)
class Rules:
    """What of a kind leaves, and how it looks then."""

    policy: Policy = Policy.DENY_LIST
    settings: twins.Settings = field(default_factory=twins.Settings)


@dataclass(frozen=True)
class Ends:
    """The two clusters, and the local objects' authors, who are told."""

    local: CachedCluster
    remote: CachedCluster
    tell: Tell


class Reflection:
    """Keeps the twins of one kind, between one pair of namespaces. Keys are those of originals."""

    def __init__(self, kind: Kind, pair: Pair, rules: Rules, ends: Ends) -> None:
        self._kind = kind
        self._forge = FORGES[kind]
        self._pair = pair
        self._rules = rules
        self._local, self._remote, self._tell = ends.local, ends.remote, ends.tell
        self._applied: dict[Key, tuple[str, str]] = {}
        self._told: dict[Key, tuple[str, str]] = {}

    async def reconcile(self, key: Key) -> float | None:
        original = await self._local.seen(self._kind, key)
        if original is None or self._reason_to_stay(original) is not None:
            return await self._withdraw(key, original)
        found = await self._remote.get(self._kind, self.twin_of(key))  # a foreign one is not seen
        if found and not self._is_twin(found):
            return self._refuse(original)
        wanted = self._forge.remote(original, self._pair, self._rules.settings)
        if found and self._is_current(wanted, found):
            return None
        return await self._apply(original, wanted, found)

    def twin_of(self, key: Key) -> Key:
        """Return where the twin of the original ``key`` is."""
        namespace, name = self._pair.twin_of(key)
        return Key(namespace, self._forge.twin_name(name, self._pair))

    def original_of(self, key: Key) -> Key:
        """Return where the original of the twin ``key`` is."""
        namespace, name = self._pair.original_of(key)
        return Key(namespace, self._forge.original_name(name, self._pair))

    def _is_twin(self, found: Object) -> bool:
        return self._pair.reflects(found) and not policy.is_pod_token(found)

    def _reason_to_stay(self, original: Object) -> str | None:
        try:
            return policy.reason_to_stay(self._kind, original, self._rules.policy)
        except policy.ContradictionError as error:
            self._tell(original, "Warning", FAILED, str(error))
            raise TerminalError(FAILED, f"{self._name(original)}: {error}") from error

    def _refuse(self, original: Object) -> float:
        """Leave somebody else's object alone and say so."""
        where = self.twin_of(objects.key_of(original))
        message = (
            f"{self._kind} {where} exists on {self._pair.destination} and is not ours: "
            "rename or remove one of the two"
        )
        self._tell(original, "Warning", FAILED, message)
        logger.warning("Left a foreign object alone", extra={"kind": str(self._kind), "key": where})
        return FOREIGN_RETRY_S

    async def _apply(self, original: Object, wanted: Object, found: Object | None) -> float | None:
        sent = _digest(wanted)
        if found:  # the very object that was looked at, or a conflict
            wanted["metadata"]["uid"] = objects.uid(found)
        try:
            made = await self._remote.apply(self._kind, wanted, manager=keys.REFLECTION_MANAGER)
        except errors.InvalidError as error:
            if _ANOTHER in str(error):
                raise errors.ConflictError(str(error)) from error
            self._tell(original, "Warning", FAILED, str(error))
            raise TerminalError(FAILED, f"{self._name(original)}: {error}") from error
        except errors.ForbiddenError as error:
            if _TERMINATING in str(error):  # its mapping is about to leave, or to come anew
                return TERMINATING_RETRY_S
            self._tell(original, "Warning", FAILED, str(error))
            raise
        self._applied[objects.key_of(made)] = (sent, _version(made))
        if found is None or _version(found) != _version(made):
            self._done(original)
        return None

    def _done(self, original: Object) -> None:
        self._told.pop(objects.key_of(original), None)
        message = f"{self._kind} reflected to {self._pair.destination}"
        self._tell(original, "Normal", SUCCESSFUL, message)
        extra = {"kind": str(self._kind), "key": objects.key_of(original)}
        logger.info("Reflected an object", extra=extra)

    def _is_current(self, wanted: Object, found: Object) -> bool:
        if twins.is_current(wanted, found, self._forge.exact):
            return True
        applied = self._applied.get(objects.key_of(found))
        return applied == (_digest(wanted), _version(found))

    async def _withdraw(self, key: Key, original: Object | None) -> float | None:
        """Remove the twin of what is gone or stays at home, after both clusters said so live."""
        where = self.twin_of(key)
        self._applied.pop(where, None)
        found = await self._remote.seen(self._kind, where)
        if found and self._is_twin(found):
            original = await self._local.get_live(self._kind, key)
            if original is not None and self._reason_to_stay(original) is None:
                return STALE_RETRY_S
            await self._delete(where)
        self._tell_disabled(key, original)
        return None

    async def _delete(self, where: Key) -> None:
        twin = await self._remote.get_live(self._kind, where)
        if twin and self._is_twin(twin):
            await self._remote.delete(self._kind, where, uid=objects.uid(twin))
            logger.info("Removed a twin", extra={"kind": str(self._kind), "key": where})

    def _tell_disabled(self, key: Key, original: Object | None) -> None:
        """Say once why ``original`` is not reflected; of what is protected, say nothing."""
        if original is None or policy.is_protected(self._kind, original):
            self._told.pop(key, None)
            return
        reason = self._reason_to_stay(original)
        if reason is not None and self._told.get(key) != (objects.uid(original), reason):
            self._told[key] = (objects.uid(original), reason)
            self._tell(original, "Normal", DISABLED, reason)

    def _name(self, original: Object) -> str:
        return f"{self._kind} {objects.key_of(original)}"


def _digest(wanted: Object) -> str:
    return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()


def _version(obj: Object) -> str:
    return str(obj["metadata"].get("resourceVersion", ""))
