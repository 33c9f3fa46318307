"""The informers of one namespace mapping, those that all share, and the rights that they lack."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from apis import keys, texts
from apis.objects import Key, Kind, Object, named
from apis.offloading import MappedNamespace
from apis.reflection import ReflectedKind
from apis.reflectionpolicy import ReflectionEvent, ReflectionSubject
from kube import errors
from kube.cache import CachedCluster
from kube.cluster import Cluster, MemoryQuota, Selection
from kube.controller import Runner
from kube.dynamicinformer import SETTLED_S, InformerFeed, Keys, LazyInformer
from kube.informer import Change, Informer
from kube.ratelimit import Budget
from kube.slim import Packed
from reflector.kinds.contract import Input, RateLimitedRead, ReflectionContext
from reflector.patience import Patience, RateLimitedReader
from reflector.reflection import FAILED, SUCCESSFUL, RecordEvent, Reflection

MOST_BYTES: Final = 16 * 2**20
"""Of the twins and Events of one provider that are kept. Source: docs/parity.md H14."""


@dataclass(frozen=True)
class CachedClients:
    """The two clusters, through caches."""

    home: CachedCluster
    foreign: CachedCluster


class CommonInformers:
    """The informers of kinds without namespaces: one each for all pairs, from the first need on."""

    def __init__(self, home: CachedCluster, *, is_settled: bool = False) -> None:
        self._home = home
        self.budget = Budget()
        """What the provider may have us do, through all pairs together."""
        self.memory_quota = MemoryQuota(MOST_BYTES)
        """What is kept of what the provider says, of all pairs together."""
        self.settled = asyncio.Event()
        """Whether nothing comes any more of what was written before we lead."""
        if is_settled:
            self.settled.set()
        self._informers: dict[Selection[Any], Informer[Any]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Let ``tasks`` own what follows."""
        self._tasks = tasks
        if not self.settled.is_set():
            tasks.create_task(self._settle())

    async def _settle(self) -> None:
        await asyncio.sleep(SETTLED_S)
        self.settled.set()

    def informer(self, of: Selection[Any]) -> Informer[Any]:
        if of not in self._informers:
            informer = self._informers[of] = Informer(of)
            if of.shape is Packed:
                self._home.add(informer)
            if self._tasks is not None:
                self._tasks.create_task(informer.run(self._home))
        return self._informers[of]


class NamespaceInformers:
    """The informers of one namespace mapping, each once however many kinds look at it.

    Fulfils Lister.
    """

    def __init__(
        self, pair: MappedNamespace, clients: CachedClients, common: CommonInformers
    ) -> None:
        self._pair, self._clients, self._common = pair, clients, common
        self._here: dict[Selection[Any], Informer[Any]] = {}
        self._there: dict[Selection[Any], Informer[Any]] = {}
        self._feeds: dict[Informer[Any], list[tuple[Runner, Keys]]] = {}
        self._listed: dict[Kind, Informer[Any]] = {}
        self._reader: RateLimitedReader[Any] | None = None
        self._outward: list[tuple[Reflection, Informer[Any], Informer[Any]]] = []
        """With originals and twins."""

    def get(self, kind: Kind, key: Key) -> Any:
        return _whole(self._listed[kind].get(key))

    def each(self, kind: Kind) -> Iterable[Any]:
        return map(_whole, self._listed[kind].items().values())

    def recent(self, key: Key) -> Any:
        return self._reader.get(key) if self._reader else None

    def patience(self, read: RateLimitedRead, context: ReflectionContext) -> Patience:
        """Return by what the originals of the one kind with such a read wait."""
        of = Selection(read.kind, read.shape, self._pair.local_namespace)
        self._reader = RateLimitedReader(self._clients.home, of)
        return Patience(read, context, self._reader)

    def follow_source(self, reflection: Reflection, runner: Runner) -> None:
        row = reflection.of_kind.row
        kept = None if row.is_outward else self._common.memory_quota
        of = Selection(row.kind, Packed, reflection.namespace, most=row.most, kept=kept)
        if row.is_outward:
            originals = self._add(self._here, of, runner, reflection.saw)
            reflection.breaker.watch(originals)
            self._listed[row.kind] = originals
        else:
            self._add(self._there, of, runner, reflection.saw)

    def follow_target(self, reflection: Reflection, runner: Runner) -> None:
        """Let changes of its twins do so too: each asks for a look at the original.

        Without such objects nothing is followed, until the first is made. What comes home is
        never looked at: the Events of a namespace are its own.
        """
        of_kind = reflection.of_kind
        if of_kind.row.is_outward:
            labels = ",".join([self._pair.selector(), *of_kind.selector])
            where = self._pair.remote_namespace
            originals = self._listed[of_kind.row.kind]

            def keeps(twin: Key) -> bool:
                return originals.may_have(reflection.original_of(twin))

            kept = self._common.memory_quota
            of = Selection(of_kind.row.twin, Packed, where, labels=labels, kept=kept, keeps=keeps)
            settled = self._common.settled
            resting = self._there[of] = LazyInformer(of, settled=settled, may_lack=_MAY_LACK)
            reflection.before_first = resting.awake
            self._add(self._there, of, runner, lambda change: [reflection.original_of(change.key)])
            self._outward.append((reflection, originals, resting))

    def begun(self) -> None:
        """Suspect what twins are there of and is not, as all is known now.

        It went while nobody reflected, or home was restored from an older state meanwhile.
        """
        for reflection, originals, twins in self._outward:
            wanted = map(reflection.original_of, twins.items())
            missing = [key for key in wanted if originals.get(key) is None]
            reflection.breaker.suspect(originals, missing)

    def report_rights(self, rights: "Rights") -> None:
        """Let ``rights`` know of those that are missing for originals and twins of its kind."""
        sides = ((self._pair.origin, self._here), (self._pair.destination, self._there))
        for cluster, informers in sides:
            for of, informer in informers.items():
                if of.kind in {rights.row.kind, rights.row.twin}:
                    informer.on_withheld = rights.of(cluster)

    def report_excess(self, report: Callable[[str], None]) -> None:
        """Let ``report`` know why the provider says more than is kept of it."""
        for informer in self._there.values():
            informer.on_excess = lambda excess: report(excess) if excess else None

    def follow_input(self, input_: Input, context: ReflectionContext, runner: Runner) -> None:
        namespace = self._pair.local_namespace if input_.kind.namespaced else ""
        of = Selection(input_.kind, input_.shape or Packed, namespace, labels=input_.labels)

        def touched(change: Change[Any]) -> Iterable[Key]:
            return input_.touched(_whole(change.old), _whole(change.new), context)

        if input_.may_be_unknown:
            self._here.setdefault(of, Informer(of, may_lack=(errors.NotFoundError,)))
        self._listed[input_.kind] = self._add(self._here, of, runner, touched)

    def is_lacking(self) -> bool:
        """Whether a list is refused, which counts as nothing there."""
        informers = (*self._here.values(), *self._there.values())
        return any(informer.is_lacking for informer in informers)

    def followed(self) -> list[InformerFeed]:
        return [
            InformerFeed(
                informer,
                cluster,
                self._feeds[informer],
                is_shared=not of.kind.namespaced,
                is_whole=of.shape is Packed,
            )
            for cluster, informers in (
                (self._clients.home, self._here),
                (self._clients.foreign, self._there),
            )
            for of, informer in informers.items()
        ]

    def _add(
        self,
        side: dict[Selection[Any], Informer[Any]],
        of: Selection[Any],
        runner: Runner,
        keys_: Keys,
    ) -> Informer[Any]:
        if of not in side:
            side[of] = Informer(of) if of.kind.namespaced else self._common.informer(of)
        self._feeds.setdefault(side[of], []).append((runner, keys_))
        return side[of]


_MAY_LACK: Final = (errors.NotFoundError, errors.ForbiddenError)
"""Why a provider's list of twins may be refused: what is written then tells why.

It may not have installed a CRD, nor granted, or granted any longer, the rights for a kind.
"""


def _whole(item: Any) -> Any:
    return item.whole() if isinstance(item, Packed) else item


# Rights that are missing for a kind, said in the namespace that misses it -------------------------

AGAIN_S: Final = 1800.0
"""What is still missing is told again so often: API servers forget Events after an hour."""


class Rights:
    """Tells it on the NamespaceOffloading: without the right to list no object is known to tell on.

    Source: docs/parity.md F-34.
    """

    def __init__(
        self, home: Cluster, namespace: str, row: ReflectedKind, record: RecordEvent
    ) -> None:
        self._home, self._record, self.row = home, record, row
        self._where = Key(namespace, keys.OFFLOADING_NAME)
        self._missing: dict[str, str] = {}
        self._reported, self._is_known = "", False
        self._changed = asyncio.Event()

    def remember(
        self, destination: str, events: Mapping[ReflectionSubject, ReflectionEvent]
    ) -> None:
        """Take what ``events`` say for said: that it is over is told after a restart, too."""
        last = events.get(ReflectionSubject(destination, self.row.name))
        if last and last.reason == FAILED:
            self._reported = last.message

    def listed(self) -> None:
        """Note that all was listed: the rights for it are there, as nobody said otherwise."""
        self._is_known = True
        self._changed.set()

    def of(self, cluster: str) -> Callable[[str], None]:
        """Return what notes which right is missing in ``cluster``, in its words; "" for none."""

        def note(said: str) -> None:
            self._is_known = self._is_known or bool(said)
            self._missing |= {cluster: said}
            self._changed.set()

        return note

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S if self._reported else None):
                    await self._changed.wait()
            self._changed.clear()
            missing = [f"on {where}: {said}" for where, said in self._missing.items() if said]
            if missing or (self._reported and self._is_known):
                self._reported = "; ".join(missing)
                await self._report(self._reported)

    async def _report(self, missing: str) -> None:
        offloading, resource = await self._offloading(), self.row.kind.resource
        if missing:
            text = f"{resource} cannot be followed {missing}: grant get, list and watch"
            self._record(offloading, "Warning", FAILED, texts.clamp(text))
        else:
            text = f"{resource} can be followed again"
            self._record(offloading, "Normal", SUCCESSFUL, text)

    async def _offloading(self) -> Object:
        with contextlib.suppress(errors.KubeError):  # its UID is only for kubectl describe
            found = await self._home.get_live(keys.NAMESPACE_OFFLOADING, self._where)
            if found:
                return found
        return named(keys.NAMESPACE_OFFLOADING, self._where)
