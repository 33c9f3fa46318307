"""Each pod that is bound to the virtual node runs on the provider, and says here how it goes.

Source: behaviour.md 5.5; measures.md row 5; security.md B9, D3, I3.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, Protocol, TypeAlias

from apis import keys, objects, podfields
from apis.objects import Key, Kind, Object
from apis.pairs import Pair
from apis.remap import Remap
from kube import errors, metrics
from kube.breaker import Breaker
from kube.cache import CachedCluster
from kube.written import Written
from kubelet.departures import Departures
from kubelet.forge import answers, decisions, life, news, shadowpod, status
from kubelet.forge.clean import LocalContext
from kubelet.forge.conditions import is_unavailable
from kubelet.forge.decisions import (
    DESTRUCTIVE,
    FallBack,
    Observed,
    Step,
    decide,
    is_labelled,
    rests_on_absence,
)
from kubelet.forge.mapping import MappingState, NamespaceMapping
from kubelet.tokens import Tokens

logger = logging.getLogger(__name__)

SUCCESSFUL_REFLECTION: Final = "SuccessfulReflection"
FAILED_UPDATE: Final = "FailedUpdate"
UNKNOWN_FIELD: Final = "UnknownField"
_NEWER: Final = "it is newer than this virtual kubelet, which wants an upgrade"
LINGER_S: Final = 2.0
"""What a pod that ends says for that long is told; a kubelet takes as long to let go of it."""
MAX_LINGER_S: Final = 10.0
"""After what each change is told, of a pod that takes its time."""
CONFIRM_S: Final = 2.0
TAKEN_S: Final = 0.1
QUIET_S: Final = 10.0
"""A pod that starts has its first status then at the latest: what comes before it says little."""
_NOTHING: Final[Object] = {"metadata": {}}
ANSWER_S: Final = 60.0
"""A provider that takes a ShadowPod makes its Pod sooner: else the user is told."""
LOOK_AGAIN_S: Final = 5.0
"""For what no event will tell, such as an object that is not selected by our watches."""
REFUSED_S: Final = 1.0
MAX_REFUSED_S: Final = 300.0
BACKED_OFF_S: Final = 60.0
"""For a pod that waits for its namespace's entry, which may be unoffloaded before it has one."""

_Read: TypeAlias = Callable[[Kind, Key], Awaitable[Object | None]]
_Act: TypeAlias = Callable[[Object, Observed], Awaitable[float | None]]


class Namespaces(Protocol):
    """Where the pods of a namespace go."""

    async def mapping(self, namespace: str) -> NamespaceMapping:
        """Return it; that a namespace is not offloaded is always the server's own word."""
        ...

    def is_synced(self, namespace: str) -> bool:
        """Whether all that the provider has of the namespace has been seen."""
        ...


class Recorder(Protocol):
    """Tells users."""

    def event(
        self,
        kind: Kind,
        obj: Object,
        type_: Literal["Normal", "Warning"],
        reason: str,
        message: str,
    ) -> None:
        """Record an Event about ``obj``."""
        ...


@dataclass(frozen=True)
class Node:
    """The virtual node whose pods these are; ``options`` may change with its VirtualNode."""

    name: str
    host_ip: str
    options: Callable[[], shadowpod.Options]
    is_provider_silent: Callable[[], bool] = lambda: False
    forbids: Callable[[Object], str] = lambda _local: ""
    """Why a pod's namespace does not let it run here, "" if it does."""
    remap: Callable[[], Remap | None] = Remap
    """By which addresses its pods are reached now; None: nobody is told any."""


class PodReconciler:
    """Sees one pod on both sides, decides by the table, does one step."""

    def __init__(  # noqa: PLR0913  # the two worlds and who looks at them
        self,
        local: CachedCluster,
        remote: CachedCluster,
        *,
        node: Node,
        namespaces: Namespaces,
        recorder: Recorder,
        clock: Callable[[], datetime],
        departures: Departures | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        self._breaker = breaker or Breaker(lambda: None)
        self._departures = departures or Departures()
        self._local, self._remote = local, remote
        self._node, self._namespaces = node, namespaces
        self._recorder, self._clock = recorder, clock
        server = node.options().api_server
        self._tokens = Tokens(local, remote, server=server, recorder=recorder, clock=clock)
        self._steps: Mapping[Step, _Act] = {
            Step.OFFLOAD: self._offload,
            Step.FOLLOW: self._follow,
            Step.WATCH_END: self._watch_end,
            Step.CONFIRM_END: self._confirm_end,
            Step.REFUSE: self._refuse_taken,
            Step.WAIT: self._wait,
        }
        self._silent: set[Key] = set()
        self._ending: dict[Key, datetime] = {}
        self._lingering: dict[Key, _Lingering] = {}
        self._begun: dict[Key, datetime] = {}
        self._deleted: dict[Key, str] = {}
        self._written = Written()
        self._refused_s: dict[Key, float] = {}
        self._unanswered: set[Key] = set()
        self._creator = ""
        """What the provider labelled the last ShadowPod with; a wrong guess it corrects."""

    async def reconcile(self, key: Key) -> float | None:
        local = self._written.newest(key, self._mine(await self._local.seen(keys.POD, key)))
        if local is None:
            self._forget(key)
        mapping = await self._namespaces.mapping(key.namespace)
        if mapping.state is not MappingState.OFFLOADED or mapping.pair is None:
            return await self._fall_back(local, mapping) if local else None
        if not self._namespaces.is_synced(key.namespace):
            return None  # its barrier asks for all its pods when it falls
        if self._node.is_provider_silent():
            await self._wait_out(key, local)
            return None  # asked for again when the silence ends
        observed = await self._observe(key, local, mapping.pair, self._remote.seen)
        if rests_on_absence(decide(observed), observed):
            observed = await self._observe(key, local, mapping.pair, self._remote.get_live)
        if self._rests_on_list(decide(observed), key, observed):
            if self._breaker.is_open():
                return LOOK_AGAIN_S
            observed = await self._observe_live(key, mapping.pair)
        return await self._do(decide(observed), key, observed)

    def _rests_on_list(self, step: Step, key: Key, observed: Observed) -> bool:
        """Whether ``step`` is taken because a list lacks something that may be there."""
        if step is Step.OFFLOAD:
            return key in self._begun or is_labelled(observed.local or _NOTHING)
        return step in DESTRUCTIVE and not self._is_proven(step, key, observed)

    def _is_proven(self, step: Step, key: Key, observed: Observed) -> bool:
        """Whether what ``step`` deletes rests on what was seen, not on what a cache lacks."""
        if step is Step.DELETE_LOCAL and observed.local is not None:
            twin = observed.pair.twin_of(key)
            return self._departures.are_twins_gone(twin, objects.uid(observed.local))
        uid = objects.annotations(observed.shadow or _NOTHING).get(keys.LOCAL_POD_UID, "")
        if observed.local is None:
            return self._departures.is_local_gone(key, uid)
        return objects.is_terminating(observed.local) and objects.uid(observed.local) == uid

    async def _do(self, step: Step, key: Key, observed: Observed) -> float | None:
        logger.debug("Decided", extra={"pod": str(key), "step": step.name})
        if step is Step.DELETE_SHADOW and observed.shadow is not None:
            await self._delete_shadow(observed.shadow)
        if step is Step.DELETE_LOCAL and observed.local is not None:
            await self._delete_local(observed.local)
        if observed.local is None or step not in self._steps:
            return None
        return await self._steps[step](observed.local, observed)

    # Seeing ----------------------------------------------------------------------------------

    def _mine(self, pod: Object | None) -> Object | None:
        """Return the pod if it is bound here: a namesake elsewhere is none of ours."""
        return pod if pod and pod["spec"].get("nodeName") == self._node.name else None

    async def _observe(self, key: Key, local: Object | None, pair: Pair, read: _Read) -> Observed:
        twin = pair.twin_of(key)
        shadow, remote = await asyncio.gather(read(keys.SHADOW_POD, twin), read(keys.POD, twin))
        return Observed(local, shadow, remote, pair, self._node.name)

    async def _observe_live(self, key: Key, pair: Pair) -> Observed:
        """Return what the servers say now: nothing is deleted on the word of a cache."""
        local = self._mine(await self._local.get_live(keys.POD, key))
        return await self._observe(key, local, pair, self._remote.get_live)

    # The life of an offloaded pod ------------------------------------------------------------

    async def _wait(self, _local: Object, _observed: Observed) -> float | None:
        return LOOK_AGAIN_S

    async def _offload(self, local: Object, observed: Observed) -> float | None:
        if message := self._node.forbids(local) or podfields.refusal(local["spec"]):
            return await self._refuse(local, message)
        pair = observed.pair
        shadow = shadowpod.shadow(local, pair, self._node.options(), self._creator)
        key = objects.key_of(local)
        try:
            made = await self._remote.create(keys.SHADOW_POD, shadow)
        except errors.AlreadyExistsError:
            return await self._judge_taken(local, pair)
        except (errors.ForbiddenError, errors.InvalidError) as error:
            return await self._refuse(local, str(error))
        self._creator = objects.labels(made).get(keys.CREATOR_USER, "")
        logger.info("Created shadowpod", extra={"shadowpod": str(objects.key_of(shadow))})
        self._refused_s.pop(key, None)
        self._begun[key] = self._clock()
        if unknown := podfields.unknown(local["spec"]):
            message = f"spec.{', spec.'.join(unknown)} did not go to {pair.destination}: {_NEWER}"
            self._recorder.event(keys.POD, local, "Warning", UNKNOWN_FIELD, message)
        await self._tokens.begin(local, made, pair)
        if status.is_held_up(local):
            twin = objects.key_of(shadow)
            message = f"runs on cluster {pair.destination} as pod {twin}"
            self._recorder.event(keys.POD, local, "Normal", SUCCESSFUL_REFLECTION, message)
            await self._write(local, status.accepted(local, self._home()))
        return QUIET_S  # the first status that is worth a write is mostly that it runs

    async def _judge_taken(self, local: Object, pair: Pair) -> float | None:
        """Look at what has the name: the caches are behind."""
        key = objects.key_of(local)
        observed = await self._observe(key, local, pair, self._remote.get_live)
        step = decide(observed)
        if step in DESTRUCTIVE or step is Step.OFFLOAD:
            return TAKEN_S  # it went meanwhile, or waits for proof: the next look will tell
        return await self._do(step, key, observed)

    async def _follow(self, local: Object, observed: Observed) -> float | None:
        if (shadow := observed.shadow) is None:
            return None
        await self._update(local, shadow, observed.pair)
        if refusal := answers.refusal(shadow):
            await self._refuse(local, refusal)
            return None  # the provider tells when it changes its mind
        again_s = await self._tokens.keep(local, shadow, observed.remote, observed.pair)
        if answers.is_awaited(local, shadow, observed.remote):
            left_s = await self._await_answer(local, observed.pair)
            if left_s <= 0:
                return again_s  # the Pod, or what is said of the ShadowPod, brings us back
            again_s = min(again_s or left_s, left_s)
        self._count_unanswered(self._unanswered - {objects.key_of(local)})
        wanted = self._status(local, shadow, observed.remote)
        await self._write(local, wanted, observed.remote)
        return again_s if is_labelled(local) else min(again_s or QUIET_S, QUIET_S)

    async def _await_answer(self, local: Object, pair: Pair) -> float:
        """Tell that the provider makes no Pod, once it had a minute; return what is left of it."""
        key = objects.key_of(local)
        since = self._begun.setdefault(key, self._clock())
        left_s = ANSWER_S - (self._clock() - since).total_seconds()
        if left_s > 0:
            return left_s
        message = f"cluster {pair.destination} took the pod and has made no Pod of it in a minute"
        wanted = status.unanswered(local, f"{message}: ask its administrator", self._home())
        if not news.is_same(status.status_of(local), wanted):
            await self._patch(local, wanted, {})
            self._recorder.event(keys.POD, local, "Warning", keys.NO_REMOTE_POD, message)
        self._count_unanswered({*self._unanswered, key})
        return left_s

    def _count_unanswered(self, now: set[Key]) -> None:
        self._unanswered = now
        metrics.UNANSWERED.set(len(now))

    async def _update(self, local: Object, shadow: Object, pair: Pair) -> None:
        if changes := shadowpod.changes(shadow, local, pair, self._node.options()):
            version = {"resourceVersion": shadow["metadata"]["resourceVersion"]}
            changes["metadata"] = {**changes.get("metadata", {}), **version}
            try:
                await self._remote.patch(keys.SHADOW_POD, objects.key_of(shadow), changes)
            except (errors.ForbiddenError, errors.InvalidError) as error:
                self._recorder.event(keys.POD, local, "Warning", FAILED_UPDATE, str(error))
                return
            logger.info("Updated shadowpod", extra={"shadowpod": str(objects.key_of(shadow))})
        if refusal := answers.refusal(shadow, keys.UPDATED_CONDITION):
            self._recorder.event(keys.POD, local, "Warning", FAILED_UPDATE, refusal)

    def _status(self, local: Object, shadow: Object, remote: Object | None) -> Object:
        phase = status.status_of(shadow).get("phase", "")
        if remote is not None and answers.is_replaced(shadow, remote):
            return status.ending(local, remote, self._home())
        if remote is not None:
            home = self._home(life.restarts(local, remote))
            return status.mirrored(local, remote, home, answers.deferral(shadow))
        if phase in status.FINISHED:
            return status.vanished(local, phase, self._clock())
        return status.accepted(local, self._home())

    async def _watch_end(self, local: Object, observed: Observed) -> float | None:
        """Tell how it ends: at once if that is its work, by which Jobs count; else if it lingers.

        Most pods are gone before that is worth a write, or soon after they said so.
        """
        remote = observed.mine(observed.remote)
        if remote is None or status.is_finished(local):
            return None
        wanted = status.mirrored(local, remote, self._home(life.restarts(local, remote)))
        is_told_at_once = answers.is_counted(local) and status.is_finished(remote)
        left_s = 0.0 if is_told_at_once else self._lingers_s(objects.key_of(local), remote)
        if left_s > 0:
            return left_s
        await self._write(local, wanted, remote)
        return None

    def _lingers_s(self, key: Key, remote: Object) -> float:
        """Return the seconds until what ``remote`` says of its end is worth a write."""
        now, version = self._clock(), str(remote["metadata"]["resourceVersion"])
        known = self._lingering.get(key) or _Lingering(now, now, version)
        if known.version != version:
            known = _Lingering(known.began, now, version)
        self._lingering[key] = known
        left_s = LINGER_S - (now - known.changed).total_seconds()
        return min(left_s, MAX_LINGER_S - (now - known.began).total_seconds())

    async def _confirm_end(self, local: Object, observed: Observed) -> float | None:
        """Let the provider know that the pod has ended, unless it is about to see that itself."""
        since = self._ending.setdefault(objects.key_of(local), self._clock())
        left_s = CONFIRM_S - (self._clock() - since).total_seconds()
        if observed.remote is not None and left_s > 0:
            return left_s
        if observed.shadow is not None:
            await self._update(local, observed.shadow, observed.pair)
        return None

    # The provider is silent --------------------------------------------------------------------

    async def _wait_out(self, key: Key, local: Object | None) -> None:
        """Mark a pod that runs as out of reach; everything else is looked at afterwards."""
        self._silent.add(key)
        if local is None or objects.is_terminating(local) or not status.is_running(local):
            return
        wanted = status.out_of_reach(local, self._clock())
        if not news.is_same(status.status_of(local), wanted) or not is_unavailable(local):
            await self._patch(local, wanted, {"labels": {keys.REMOTE_UNAVAILABLE: "true"}})

    def after_silence(self) -> Iterable[Key]:
        """Return what has to be looked at now that the provider answers again."""
        found, self._silent = self._silent, set()
        return found

    def _home(self, restarts: int = 0) -> LocalContext:
        node = self._node
        return LocalContext(node.host_ip, self._clock(), restarts, node.remap())

    # Refusals --------------------------------------------------------------------------------

    async def _refuse_taken(self, local: Object, observed: Observed) -> float | None:
        pair = observed.pair
        twin = pair.twin_of(objects.key_of(local))
        message = (
            f"pod or shadowpod {twin} already exists on cluster {pair.destination} and was not"
            " made for this pod: delete it there, or rename this one"
        )
        return await self._refuse(local, message)

    async def _refuse(self, local: Object, message: str) -> float:
        """Leave the pod Pending and say why; return when to try again."""
        key = objects.key_of(local)
        wanted = status.refused(local, message, self._home())
        if not news.is_same(status.status_of(local), wanted):
            await self._patch(local, wanted, {})
            self._recorder.event(keys.POD, local, "Warning", status.FAILED_REFLECTION, message)
        pause_s = self._refused_s.get(key, REFUSED_S)
        self._refused_s[key] = min(pause_s * 2, MAX_REFUSED_S)
        return pause_s

    # The namespace is not offloaded, or no more -----------------------------------------------

    async def _fall_back(self, local: Object, mapping: NamespaceMapping) -> float | None:
        match decisions.fall_back(local, mapping.state, self._clock()):
            case FallBack.LET_GO:
                return await self._let_go(local, mapping)
            case FallBack.BE_PATIENT:
                return decisions.patience_s(local, self._clock())
            case FallBack.ABORT:
                await self._disable(local, status.aborted(local, self._clock()))
            case FallBack.ABORT_UNLESS_WANTED if not await self._is_still_offloaded(local):
                await self._disable(local, status.aborted(local, self._clock()))
            case FallBack.ABORT_UNLESS_WANTED:
                await self._disable(local, status.backed_off(local))
                return BACKED_OFF_S
            case FallBack.BACK_OFF:
                await self._disable(local, status.backed_off(local))
        return None

    async def _is_still_offloaded(self, local: Object) -> bool:
        """Whether somebody wants its namespace offloaded, if not (yet) to this cluster."""
        key = Key(objects.key_of(local).namespace, keys.OFFLOADING_NAME)
        found = await self._local.get_live(keys.NAMESPACE_OFFLOADING, key)
        return found is not None and not objects.is_terminating(found)

    async def _disable(self, local: Object, wanted: Object) -> None:
        if news.is_same(status.status_of(local), wanted):
            return
        await self._patch(local, wanted, {})
        message = str(wanted["message"])
        self._recorder.event(keys.POD, local, "Warning", status.REFLECTION_DISABLED, message)

    async def _let_go(self, local: Object, mapping: NamespaceMapping) -> float | None:
        """End a terminating pod, once nothing of it can be left on the provider."""
        if mapping.pair is None:
            if mapping.state is MappingState.WAITING and is_labelled(local):
                return LOOK_AGAIN_S  # it ran there, and nobody says that it is gone
            await self._delete_local(local)
            return None
        try:
            observed = await self._observe_live(objects.key_of(local), mapping.pair)
        except errors.ForbiddenError:
            return LOOK_AGAIN_S  # our rights go before the namespace does; then its entry goes
        step = decide(observed)
        if step in DESTRUCTIVE:
            await self._do(step, objects.key_of(local), observed)
        return LOOK_AGAIN_S

    # Writing ---------------------------------------------------------------------------------

    async def _write(self, local: Object, wanted: Object, remote: Object | None = None) -> None:
        """Write the status if it is worth it, with what says whose pod it is, and of which Pod."""
        before = status.status_of(local)
        labels: dict[str, str | None] = {}
        if keys.REMOTE_UNAVAILABLE in objects.labels(local):
            labels[keys.REMOTE_UNAVAILABLE] = None
        if not is_labelled(local) and self._is_due(local, wanted):
            labels[keys.SHADOW_POD_LABEL] = "true"
        if labels or news.is_significant(before, wanted):
            metadata = {"labels": labels, "annotations": life.note(local, remote)}
            said = {name: value for name, value in metadata.items() if value}
            await self._patch(local, wanted, said)
        known = news.troubles(before)
        for reason, message in news.troubles(wanted).items():
            if reason not in known:
                self._recorder.event(keys.POD, local, "Warning", reason, f"remotely, {message}")

    def _is_due(self, local: Object, wanted: Object) -> bool:
        """Whether a pod gets its first status: it runs, is in trouble, or takes its time."""
        if news.is_significant(status.status_of(local), wanted):
            return True
        since = self._begun.setdefault(objects.key_of(local), self._clock())
        return (self._clock() - since).total_seconds() >= QUIET_S

    async def _patch(self, local: Object, wanted: Object, metadata: Object) -> None:
        changes = news.patch(status.status_of(local), wanted)
        key = objects.key_of(local)
        metadata = {"uid": objects.uid(local), **metadata}
        made = await self._local.patch_status(keys.POD, key, changes, metadata=metadata)
        self._written.add(local, made)

    async def _delete_shadow(self, shadow: Object) -> None:
        key = objects.key_of(shadow)
        self._departures.asked(key, objects.annotations(shadow).get(keys.LOCAL_POD_UID, ""))
        await self._remote.delete(keys.SHADOW_POD, key, uid=objects.uid(shadow))
        logger.info("Deleted shadowpod", extra={"shadowpod": str(key)})

    async def _delete_local(self, local: Object) -> None:
        """Delete it for good, once: the cache shows it for a while after that."""
        key, uid = objects.key_of(local), objects.uid(local)
        if self._deleted.get(key) == uid:
            return
        await self._local.delete(keys.POD, key, uid=uid, grace_s=0)
        self._deleted[key] = uid
        logger.info("Deleted pod", extra={"pod": str(key)})

    def _forget(self, key: Key) -> None:
        self._refused_s.pop(key, None)
        self._ending.pop(key, None)
        self._lingering.pop(key, None)
        self._begun.pop(key, None)
        self._deleted.pop(key, None)
        self._tokens.forget(key)
        self._written.forget(key)
        self._count_unanswered(self._unanswered - {key})


@dataclass(frozen=True)
class _Lingering:
    """Of a pod that ends: since when, and since when the remote one is of this version."""

    began: datetime
    changed: datetime
    version: str
