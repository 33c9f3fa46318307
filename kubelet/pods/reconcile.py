"""Each pod that is bound to the virtual node runs on the provider, and says here how it goes.

Source: docs/parity.md § 5.5; bench/goals.py row 5; SEC-B9, SEC-D3.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeAlias

from apis import apply, downward, keys, objects, podfields
from apis.objects import Key, Kind, Object
from apis.offloading import MappedNamespace
from kube import errors
from kube.breaker import Breaker
from kube.cache import CachedCluster
from kube.queue import WITHHELD_MAX_S
from kubelet.pods import apiserver, references, shadowpod, status
from kubelet.pods import decide as decisions
from kubelet.pods.apiserver import Mode, Owner
from kubelet.pods.decide import (
    DELETIONS,
    DESTRUCTIVE,
    FallBack,
    PodSnapshot,
    PodStep,
    Rejection,
    decide,
    is_labelled,
    rests_on_absence,
)
from kubelet.pods.deletion import PodDeletions
from kubelet.pods.mapping import MappingState, NamespaceMapping
from kubelet.pods.references import References
from kubelet.pods.report import PodStatuses
from kubelet.pods.shadowpod import Options
from kubelet.pods.significance import QUIET_S
from kubelet.pods.state import (
    DeletionEvidence,
    OffloadedNamespaces,
    PodStates,
    Recorder,
    VirtualNodeContext,
)
from kubelet.pods.tokens import Tokens

logger = logging.getLogger(__name__)

SUCCESSFUL_REFLECTION: Final = "SuccessfulReflection"
FAILED_UPDATE: Final = "FailedUpdate"
REFERENCES_BEHIND: Final = "ReferencesBehind"
_LESS: Final = "--profile=baseline or --profile=restricted"
_TOLD: Final = frozenset({404, 500})
"""A provider whose namespace is gone, or whose admission fails, says so: it may last."""
MAX_TAKEN_S: Final = 60.0
"""For a provider that says that a name is taken, and that nothing is there."""
NOT_OFFLOADED: Final = (
    "its namespace is not offloaded to the cluster behind this node: offload it, or choose no node"
)
LOOK_AGAIN_S: Final = 5.0
"""For what no event will tell, such as an object that is not selected by our watches."""
BACKED_OFF_S: Final = 60.0
"""For a pod that waits for its namespace's entry, which may be unoffloaded before it has one."""

_Read: TypeAlias = Callable[[Kind, Key], Awaitable[Object | None]]
_Act: TypeAlias = Callable[[Object, PodSnapshot], Awaitable[float | None]]


class PodReconciler:
    """Sees one pod on both sides, decides by the table, does one step."""

    def __init__(  # noqa: PLR0913  # the two worlds and who looks at them
        self,
        local: CachedCluster,
        remote: CachedCluster,
        *,
        node: VirtualNodeContext,
        namespaces: OffloadedNamespaces,
        recorder: Recorder,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
        departures: DeletionEvidence | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        self._local, self._remote = local, remote
        self._node, self._namespaces = node, namespaces
        self._recorder, self._clock = recorder, clock
        self._breaker = breaker or Breaker(lambda: None)
        self._memories = memories = PodStates()
        self._statuses = PodStatuses(
            local, memories, node=node, recorder=recorder, clock=clock, monotonic=monotonic
        )
        self._deletions = PodDeletions(
            local,
            remote,
            departures=departures or DeletionEvidence(),
            memories=memories,
            statuses=self._statuses,
            monotonic=monotonic,
        )
        self._references, self._monotonic = References(local, remote, node.policy), monotonic
        self._server = node.options().api_server
        self._tokens = Tokens(
            local,
            remote,
            memories,
            server=self._server,
            recorder=recorder,
            clock=clock,
            monotonic=monotonic,
        )
        self._steps: Mapping[PodStep, _Act] = {
            PodStep.OFFLOAD: self._offload,
            PodStep.FOLLOW: self._follow,
            PodStep.WATCH_END: self._watch_end,
            PodStep.CONFIRM_END: self._confirm_end,
            PodStep.REFUSE: self._refuse_taken,
            PodStep.WAIT: self._wait,
        }
        self._silent: set[Key] = set()
        self._creator = ""
        """What the provider labelled the last ShadowPod with; a wrong guess it corrects."""

    async def reconcile(self, key: Key) -> float | None:
        return self._memories.sooner(key, await self._look(key))

    async def _look(self, key: Key) -> float | None:
        cached = self._mine(await self._local.seen(keys.POD, key))
        local = self._statuses.written.newest(key, cached)
        if local is None:
            self._memories.forget(key)
            self._statuses.written.forget(key)
        mapping = await self._namespaces.mapping(key.namespace)
        if mapping.state is not MappingState.OFFLOADED or mapping.pair is None:
            return await self._fall_back(local, mapping) if local else None
        if await self._is_out_of_sight(key, local, mapping.pair):
            return None  # asked for again when it is not any more
        observed = await self._observe(key, local, mapping.pair, self._remote.seen)
        if rests_on_absence(decide(observed), observed):
            observed = await self._observe(key, local, mapping.pair, self._remote.get_live)
        if self._rests_on_list(decide(observed), key, observed):
            if self._breaker.is_open():
                return LOOK_AGAIN_S
            observed = await self._observe_live(key, mapping.pair)
        return await self._do(decide(observed), key, observed)

    def _rests_on_list(self, step: PodStep, key: Key, observed: PodSnapshot) -> bool:
        """Whether ``step`` is taken because a list lacks something that may be there."""
        if step is PodStep.OFFLOAD and observed.local is not None:
            return self._statuses.has_begun(observed.local) or is_labelled(observed.local)
        return step in DESTRUCTIVE and not self._deletions.is_proven(step, key, observed)

    async def _do(self, step: PodStep, key: Key, observed: PodSnapshot) -> float | None:
        logger.debug("Decided", extra={"pod": str(key), "step": step.name})
        local, again_s = observed.local, None
        if step in DELETIONS:
            try:
                again_s = await self._delete(step, observed)
            except errors.ForbiddenError as error:
                if step is PodStep.DELETE_LOCAL or local is None:
                    raise
                await self._withhold(local, observed.pair, str(error))
                return WITHHELD_MAX_S
        if local and objects.is_finished(local) and not objects.is_terminating(local):
            await self._tokens.end(local, observed.pair)
        act = self._steps.get(step)
        return await act(local, observed) if act and local else again_s

    async def _delete(self, step: PodStep, observed: PodSnapshot) -> float | None:
        """Delete; tokens of a pod that is about to end stay: they go with its ShadowPod else."""
        local, remote = observed.local, observed.mine(observed.remote)
        if local and remote and objects.is_terminating(local) and shadowpod.is_for(remote, local):
            await self._tokens.leave_to(local, remote)
        return await self._deletions.do(step, observed)

    # Seeing ----------------------------------------------------------------------------------

    def _mine(self, pod: Object | None) -> Object | None:
        """Return the pod if it is bound here: a pod of that name on another node is not ours."""
        return pod if pod and pod["spec"].get("nodeName") == self._node.name else None

    async def _observe(
        self, key: Key, local: Object | None, pair: MappedNamespace, read: _Read
    ) -> PodSnapshot:
        twin = pair.twin_of(key)
        shadow, remote = await asyncio.gather(read(keys.SHADOW_POD, twin), read(keys.POD, twin))
        return PodSnapshot(local, shadow, remote, pair, self._node.name)

    async def _observe_live(self, key: Key, pair: MappedNamespace) -> PodSnapshot:
        """Return what the servers say now: nothing is deleted on the word of a cache."""
        local = self._mine(await self._local.get_live(keys.POD, key))
        return await self._observe(key, local, pair, self._remote.get_live)

    # The life of an offloaded pod ------------------------------------------------------------

    async def _wait(self, _local: Object, _observed: PodSnapshot) -> float | None:
        return LOOK_AGAIN_S

    async def _offload(self, local: Object, observed: PodSnapshot) -> float | None:
        pair, twins = observed.pair, await remote_namespaces_of(local, self._namespaces)
        offloading = self._node.offloading(pair.local_namespace)
        is_local = downward.is_namespace_local(local, offloading)
        options = replace(self._node.options(), twins=twins, is_namespace_local=is_local)
        forbidden = self._node.forbids(local)
        if rejection := self._rejection(local, forbidden):
            await self._statuses.reject(local, rejection)
            return None
        if message := forbidden or shadowpod.refusal(local, options):
            return await self._statuses.refuse(local, message)
        behind = await self._references.behind(local, pair)
        if behind and (pause_s := self._memories.of(local).hold(self._monotonic())) is not None:
            return pause_s
        if behind:
            message = references.in_words(behind, pair)
            self._recorder.event(keys.POD, local, "Warning", REFERENCES_BEHIND, message)
        claims = await self._references.ephemeral(local)
        return await self._send(local, pair, replace(options, claims=claims))

    async def _send(
        self, local: Object, pair: MappedNamespace, options: shadowpod.Options
    ) -> float | None:
        shadow = shadowpod.shadow(local, pair, options, self._creator)
        try:
            made = await self._remote.create(keys.SHADOW_POD, shadow)
        except errors.AlreadyExistsError:
            return await self._judge_taken(local, pair)
        except (errors.ForbiddenError, errors.InvalidError) as error:
            return await self._statuses.refuse(local, str(error))
        except errors.KubeError as error:
            if error.status in _TOLD:
                await self._statuses.refuse(local, str(error))
            raise
        self._creator = objects.labels(made).get(keys.CREATOR_USER, "")
        logger.info("Created shadowpod", extra={"shadowpod": str(objects.key_of(shadow))})
        self._statuses.begin(local)
        tell_unsent(self._recorder, local, pair, options)
        await self._tokens.begin(local, made, pair)
        if status.is_held_up(local):
            twin = objects.key_of(shadow)
            message = f"runs on cluster {pair.destination} as pod {twin}"
            self._recorder.event(keys.POD, local, "Normal", SUCCESSFUL_REFLECTION, message)
            await self._statuses.write(local, status.accepted(local, self._statuses.home()))
        return QUIET_S  # the first status that is worth a write is mostly that it runs

    def _rejection(self, local: Object, disabled: str) -> Rejection | None:
        if self._statuses.has_begun(local):
            return None
        missing = self._node.lacks(local) if decisions.came_by_name(local) else ""
        return decisions.rejection(local, disabled, missing, self._clock())

    async def _judge_taken(self, local: Object, pair: MappedNamespace) -> float | None:
        """Look at what has the name: the caches are behind."""
        key = objects.key_of(local)
        observed = await self._observe(key, local, pair, self._remote.get_live)
        step = decide(observed)
        if step in DESTRUCTIVE or step is PodStep.OFFLOAD:
            # It went meanwhile, or waits for proof: one of the next looks will tell.
            memory = self._memories.of(local)
            again_s, memory.taken_s = memory.taken_s, min(memory.taken_s * 2, MAX_TAKEN_S)
            return again_s
        return await self._do(step, key, observed)

    async def _follow(self, local: Object, observed: PodSnapshot) -> float | None:
        if (shadow := observed.shadow) is None:
            return None
        again_s = await self._tell(local, shadow, observed)
        await self._update(local, shadow, observed.pair)
        return again_s

    async def _tell(self, local: Object, shadow: Object, observed: PodSnapshot) -> float | None:
        """Tell how the pod is, whether or not the provider takes a change of it now."""
        remote, home = observed.remote, self._statuses.home()
        there = decisions.remote_state(local, shadow, remote, self._server, home)
        if there.refusal:
            await self._statuses.refuse(local, there.refusal)
            return None  # the provider tells when it changes its mind
        again_s = None
        if there.tokens:
            owner = Owner(keys.SHADOW_POD, shadow)
            again_s = await self._tokens.keep(local, owner, remote, observed.pair, there.tokens)
        if there.is_awaited:
            left_s = await self._statuses.await_answer(local, observed.pair)
            if left_s <= 0:
                return again_s  # the Pod, or what is said of the ShadowPod, brings us back
            again_s = min(again_s or left_s, left_s)
        self._memories.of(local).is_unanswered = False
        await self._statuses.write(local, there.status, remote)
        return again_s if there.is_labelled else min(again_s or QUIET_S, QUIET_S)

    async def _update(self, local: Object, shadow: Object, pair: MappedNamespace) -> None:
        options = self._node.options()
        changes, container = shadowpod.changes(shadow, local, pair, options)
        if taken := apply.taken_off(changes.get("metadata") or {}):
            _tell_orders(self._recorder, local, pair, taken & shadowpod.unsent(local, options))
        if changes and (refusal := await self._change(shadow, changes)):
            self._recorder.event(keys.POD, local, "Warning", FAILED_UPDATE, refusal)
            if container:
                await self._add(local, shadow, container)
            return
        if refusal := decisions.remote_refusal(shadow, keys.UPDATED_CONDITION):
            self._recorder.event(keys.POD, local, "Warning", FAILED_UPDATE, refusal)

    async def _add(self, local: Object, shadow: Object, container: Object) -> None:
        """Add an ephemeral container alone: it is told as ended if it is what is refused."""
        alone = shadowpod.with_debugger({}, shadow, container)
        if refusal := await self._change(shadow, alone):
            message = f"{refusal}; kubectl debug asks for less with {_LESS}"
            await self._statuses.refuse_debugger(local, container, message)

    async def _change(self, shadow: Object, changes: Object) -> str:
        """Change the ShadowPod; return why the provider refuses it, "" if it does not."""
        version = {"resourceVersion": shadow["metadata"]["resourceVersion"]}
        patch = {**changes, "metadata": {**changes.get("metadata", {}), **version}}
        try:
            await self._remote.patch(keys.SHADOW_POD, objects.key_of(shadow), patch)
        except (errors.ForbiddenError, errors.InvalidError) as error:
            return str(error)
        logger.info("Updated shadowpod", extra={"shadowpod": str(objects.key_of(shadow))})
        return ""

    async def _watch_end(self, local: Object, observed: PodSnapshot) -> float | None:
        """Tell how it ends: at once if that is its work, by which Jobs count; else if it lingers.

        Most pods are gone before that is worth a write, or soon after they said so.
        """
        remote = observed.mine(observed.remote)
        if remote is None or objects.is_finished(local):
            return None
        again_s = None
        is_needed = apiserver.ends_late(local) and not objects.is_finished(remote)
        if is_needed and (wanted := apiserver.tokens(local, self._server)):
            owner = Owner(keys.POD, remote)  # it runs on for long without a ShadowPod
            again_s = await self._tokens.keep(local, owner, remote, observed.pair, wanted)
        is_told_at_once = decisions.is_counted(local) and objects.is_finished(remote)
        now, memory = self._monotonic(), self._memories.of(local)
        left_s = 0.0 if is_told_at_once else memory.lingers_s(remote, now)
        if left_s > 0:
            return min(left_s, again_s or left_s)
        await self._statuses.write(local, self._statuses.mirrored(local, remote), remote)
        return again_s

    async def _confirm_end(self, local: Object, observed: PodSnapshot) -> float | None:
        """Let the provider know that the pod has ended, unless it is about to see that itself."""
        left_s = self._memories.of(local).confirms_s(self._monotonic())
        if observed.remote is not None and left_s > 0:
            return left_s
        if observed.shadow is not None:
            await self._update(local, observed.shadow, observed.pair)
        return None

    # Nobody sees what there is on the provider -------------------------------------------------

    async def _is_out_of_sight(self, key: Key, local: Object | None, pair: MappedNamespace) -> bool:
        """Whether nobody knows now how the pod is on the provider; if that lasts, it is told."""
        if self._node.is_provider_silent():
            self._silent.add(key)  # it is looked at afterwards; one that runs is marked now
            if local and not objects.is_terminating(local) and status.is_running(local):
                await self._statuses.out_of_reach(local)
            return True
        if missing := self._namespaces.withheld(key.namespace):
            await self._withhold(local, pair, missing)
            return True
        return not self._namespaces.is_synced(key.namespace)

    async def _withhold(self, local: Object | None, pair: MappedNamespace, missing: str) -> None:
        """Tell that the provider took a right away, without which nobody knows how the pod is."""
        if local is None:
            return
        said = f"cluster {pair.destination} gives this virtual node too few rights: {missing}"
        message = f"{said}: ask its administrator"
        if not objects.is_finished(local):
            await self._statuses.refuse(local, message)
        elif objects.is_terminating(local):
            self._recorder.event(keys.POD, local, "Warning", status.FAILED_REFLECTION, message)

    def after_silence(self) -> Iterable[Key]:
        """Return what has to be looked at now that the provider answers again."""
        found, self._silent = self._silent, set()
        return found

    # Refusals --------------------------------------------------------------------------------

    async def _refuse_taken(self, local: Object, observed: PodSnapshot) -> float | None:
        pair = observed.pair
        twin = pair.twin_of(objects.key_of(local))
        message = (
            f"pod or shadowpod {twin} already exists on cluster {pair.destination} and was not"
            " made for this pod: delete it there, or rename this one"
        )
        return await self._statuses.refuse(local, message)

    # The namespace is not offloaded, or no longer -----------------------------------------------

    async def _fall_back(self, local: Object, mapping: NamespaceMapping) -> float | None:
        is_over = objects.is_terminating(local) or objects.is_finished(local)
        disabled = NOT_OFFLOADED if mapping.state is MappingState.WITHDRAWN else ""
        if not is_over and (rejection := self._rejection(local, disabled)):
            await self._statuses.reject(local, rejection)
            return None
        match decisions.fall_back(local, mapping.state, self._clock()):
            case FallBack.LET_GO:
                return await self._let_go(local, mapping)
            case FallBack.BE_PATIENT:
                return decisions.patience_s(local, self._clock())
            case FallBack.ABORT:
                await self._statuses.disable(local, status.aborted(local, self._clock()))
            case FallBack.ABORT_UNLESS_WANTED if not await self._is_still_offloaded(local):
                await self._statuses.disable(local, status.aborted(local, self._clock()))
            case FallBack.ABORT_UNLESS_WANTED:
                await self._statuses.disable(local, status.backed_off(local))
                return BACKED_OFF_S
            case FallBack.BACK_OFF:
                await self._statuses.disable(local, status.backed_off(local))
        return None

    async def _is_still_offloaded(self, local: Object) -> bool:
        """Whether somebody wants its namespace offloaded, if not (yet) to this cluster."""
        key = Key(objects.key_of(local).namespace, keys.OFFLOADING_NAME)
        found = await self._local.get_live(keys.NAMESPACE_OFFLOADING, key)
        return found is not None and not objects.is_terminating(found)

    async def _let_go(self, local: Object, mapping: NamespaceMapping) -> float | None:
        """End a terminating pod, once nothing of it can be left on the provider."""
        if mapping.pair is None:
            if mapping.state is MappingState.WAITING and is_labelled(local):
                return LOOK_AGAIN_S  # it ran there, and nobody says that it is gone
            await self._deletions.delete_local(local)
            return None
        try:
            await self._end_left(local, mapping.pair, is_ending=mapping.is_ending)
        except errors.ForbiddenError as error:
            # Our rights go before the namespace does; then its entry goes.
            if decisions.is_overdue(local, self._clock()):
                await self._withhold(local, mapping.pair, str(error))
        return LOOK_AGAIN_S

    async def _end_left(self, local: Object, pair: MappedNamespace, *, is_ending: bool) -> None:
        """End what is left on the provider of a pod in a namespace that is withdrawn, or the pod.

        Raises:
            ForbiddenError: that may not be seen or done any more.
        """
        key = objects.key_of(local)
        missing = self._namespaces.withheld(key.namespace)
        if self._namespaces.is_synced(key.namespace):
            observed = await self._observe(key, local, pair, self._remote.seen)
            step = decide(observed)
            is_proven = self._deletions.is_proven(step, key, observed, is_ending=is_ending)
            if step not in DESTRUCTIVE or is_proven:
                await self._deletions.do(step, observed)
            elif not (missing or self._breaker.is_open()):
                observed = await self._observe_live(key, pair)
                await self._deletions.do(decide(observed), observed)
        if missing:
            raise errors.ForbiddenError(missing)


# Tells whose pod it is what of it does not go to the provider -------------------------------------

UNKNOWN_FIELD: Final = "UnknownField"
AFFINITY: Final = "AffinityNotSent"
ORDERS: Final = "AnnotationsNotSent"
TOLERATIONS: Final = "TolerationsNotSent"
_MOST: Final = 3
"""Taints that a message names."""
_OBEYED: Final = (
    "programs of that cluster may obey it (spec.allowedPodFields.annotationDomains of its "
    "ProviderPolicy opens domains)"
)
_NEWER: Final = "it is newer than this virtual kubelet, which wants an upgrade"


def tell_unsent(recorder: Recorder, local: Object, pair: MappedNamespace, options: Options) -> None:
    """Record an Event about ``local`` for each sort of what was left out of it."""
    twins = options.twins or {}
    there = f"did not go to {pair.destination}"
    if unknown := podfields.unknown(local["spec"]):
        message = f"spec.{', spec.'.join(unknown)} {there}: {_NEWER}"
        recorder.event(keys.POD, local, "Warning", UNKNOWN_FIELD, message)
    _tell_orders(recorder, local, pair, shadowpod.unsent(local, options))
    if taints := shadowpod.untaken(local, options):
        recorder.event(keys.POD, local, "Normal", TOLERATIONS, _kept_off(taints, there))
    is_tokenless = apiserver.mode(local, options.api_server) is Mode.DISABLED
    if is_tokenless and (tokens := podfields.tokens(local["spec"])):
        message = f"{', '.join(tokens)} {there}: {podfields.TOKEN_CURE}"
        recorder.event(keys.POD, local, "Warning", keys.TOKEN_NOT_SENT, message)
    if terms := [*shadowpod.unsent_affinity(local, twins)]:
        message = "; ".join(f"{one.path} {there}: it {one.why}" for one in terms)
        recorder.event(keys.POD, local, "Warning", AFFINITY, message)


def _kept_off(taints: list[str], there: str) -> str:
    named = ", ".join(one or "every taint" for one in taints[:_MOST])
    more = f" and {len(taints) - _MOST} more" if len(taints) > _MOST else ""
    cure = "allowedPodFields.tolerations of its ProviderPolicy opens them"
    return f"tolerations of {named}{more} {there}, which keeps such nodes for others: {cure}"


def _tell_orders(
    recorder: Recorder, local: Object, pair: MappedNamespace, names: frozenset[str]
) -> None:
    if names:
        listed = ", ".join(sorted(names))
        message = f"{listed} did not go to {pair.destination}: {_OBEYED}"
        recorder.event(keys.POD, local, "Normal", ORDERS, message)


# Where the pods are whom a pod of here wants to be near, or far from ------------------------------


async def remote_namespaces_of(local: Object, namespaces: OffloadedNamespaces) -> Mapping[str, str]:
    """Return the twins of the namespaces that the pod's terms of affinity name."""
    names = sorted(shadowpod.affinity_namespaces(local))
    found = [(name, await namespaces.mapping(name)) for name in names]
    return {
        name: there.pair.remote_namespace
        for name, there in found
        if there.state is MappingState.OFFLOADED and there.pair
    }
