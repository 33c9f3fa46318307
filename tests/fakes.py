"""A cluster in a dict, which the same tests hold to a real API server (tests/kube/test_cluster.py).

What it does not do: defaults of pods, validation, quota, garbage collection by owner, controllers.
A namespace goes at once with all that is in it, as with a controller-manager.
"""

import asyncio
import datetime as dt
import fnmatch
import itertools
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar, cast, get_origin

import msgspec

from apis import keys, objects
from apis.objects import Key, Kind, Object, finalizers, key_of, labels, named
from kube import clock as clock_
from kube import errors
from kube.cluster import SHARED, Cluster, Event, Listing, Selection
from kube.slim import Version
from kube.untrusted import decode
from tests import ownership
from tests.frozen import freeze, thaw

T = TypeVar("T")

_WITHOUT_STATUS: Final = frozenset(
    {
        "configmaps",
        "secrets",
        "serviceaccounts",
        "events",
        "leases",
        "roles",
        "rolebindings",
        "clusterroles",
        "clusterrolebindings",
        "endpointslices",
        "vkoptionstemplates",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    }
)
_KEEP_STATUS_ON_CREATE: Final = frozenset({"nodes"})
_TAKE_LABELS_WITH_STATUS: Final = frozenset({"pods", "nodes"})
_MUTABLE_IN_POD: Final = ("tolerations", "activeDeadlineSeconds", "schedulingGates")
_OF_SPECS: Final = frozenset({"resize", "ephemeralcontainers"})
"""Subresources of pods by which parts of a spec change that are fixed otherwise."""
_UPDATE: Final = "update"


class _Entry(NamedTuple):
    kind: Kind
    key: Key
    old: Object | None
    new: Object | None
    version: int


@dataclass
class _Failure:
    verb: str
    error: errors.KubeError
    kind: Kind | None
    times: int
    is_after: bool


class Through:
    """A cluster of which a subclass changes some calls."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


class FakeCluster:
    """Fulfils ``Cluster``. What it keeps is frozen, and so is what ``list`` and ``watch`` give."""

    def __init__(
        self, *, strict: bool = False, now: Callable[[], dt.datetime] = clock_.now
    ) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        """How often each verb was asked of each plural."""
        self.answers: dict[Kind, Callable[[Object], Object]] = {}
        """What creating a review of that kind answers with: its status."""
        self._strict, self._now = strict, now
        self._store: dict[tuple[Kind, Key], Object] = {}
        self._owners: dict[tuple[Kind, Key], dict[str, set[ownership.Path]]] = {}
        self._history: list[_Entry] = []
        self._version = 1  # as etcd's, before anything is written
        self._oldest = 0
        self._news = asyncio.Event()
        self._cuts: list[errors.KubeError | None] = []
        self._failures: list[_Failure] = []
        self._names = itertools.count(1)
        for name in ("default", "kube-system") if strict else ():
            self._create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name)))

    # What a test may do to it -----------------------------------------------------------------

    def fail(
        self,
        verb: str,
        error: errors.KubeError,
        *,
        kind: Kind | None = None,
        times: int = 1,
        after: bool = False,
    ) -> None:
        """Let the next ``times`` calls that match raise; with ``after`` once they are done.

        ``verb`` is the name of a method, or a pattern of names; ``after`` is a lost answer.
        """
        self._failures.append(_Failure(verb, error, kind, times, after))

    def heal(self) -> None:
        """Let no call fail any more."""
        self._failures.clear()

    def expire(self) -> None:
        """Forget the history, as a compaction does: older versions are Expired from now on."""
        self._oldest = self._version

    def cut(self, error: errors.KubeError | None = None) -> None:
        """End all open watches, by ``error`` or as a server that closes them does."""
        self._cuts.append(error)
        self._notify()

    def everything(self) -> dict[tuple[Kind, Key], Object]:
        """Return all there is, frozen."""
        return self._store.copy()

    # Cluster ----------------------------------------------------------------------------------

    async def get(self, kind: Kind, key: Key) -> Object | None:
        await self._begin("get", kind)
        return thaw(self._store.get((kind, key)))

    async def get_live(self, kind: Kind, key: Key) -> Object | None:
        return await self.get(kind, key)

    async def list(self, of: Selection[T]) -> Listing[T]:
        await self._begin("list", of.kind)
        items = {
            key: _shaped(of, obj)
            for (kind, key), obj in self._store.items()
            if kind == of.kind and _selects(of, obj)
        }
        return Listing(items, str(self._version))

    async def watch(self, of: Selection[T], since: str) -> AsyncGenerator[Event[T], None]:
        await self._begin("watch", of.kind)
        at, cuts = int(since), len(self._cuts)
        if at < self._oldest:
            raise _error(410, "Expired", f"too old resource version: {since}")
        if at > self._version:
            raise _error(504, "Timeout", f"Too large resource version: {since}")
        while True:
            while at < self._version:
                event = _event(of, self._history[at - 1])  # the first write has version 2
                at += 1
                if event is not None:
                    yield event
            if len(self._cuts) > cuts:
                if (error := self._cuts[-1]) is not None:
                    raise error
                return
            await self._news.wait()

    async def create(self, kind: Kind, obj: Object) -> Object:
        await self._begin("create", kind)
        made = self._create(kind, _clean(obj))
        self._end("create", kind)
        return thaw(made)

    async def apply(self, kind: Kind, obj: Object, *, manager: str) -> Object:
        await self._begin("apply", kind)
        made = self._apply(kind, _clean(obj), manager)
        self._end("apply", kind)
        return thaw(made)

    async def patch(
        self, kind: Kind, key: Key, changes: Object, *, subresource: str = ""
    ) -> Object:
        await self._begin("patch_status" if subresource == "status" else "patch", kind)
        made = self._patch(kind, key, changes, subresource)
        self._end("patch_status" if subresource == "status" else "patch", kind)
        return thaw(made)

    async def patch_status(
        self, kind: Kind, key: Key, status: Object, *, metadata: Object | None = None
    ) -> Object:
        changes: Object = {"status": status, **({"metadata": metadata} if metadata else {})}
        return await self.patch(kind, key, changes, subresource="status")

    async def delete(self, kind: Kind, key: Key, *, uid: str, grace_s: int | None = None) -> None:
        await self._begin("delete", kind)
        stored = self._store.get((kind, key))
        if stored is not None and stored["metadata"]["uid"] == uid:
            self._delete(kind, key, grace_s)
        self._end("delete", kind)

    async def post(self, kind: Kind, key: Key, subresource: str, body: Object) -> Object:
        await self._begin("post", kind)
        stored = self._existing(kind, key)
        if subresource == "token":
            seconds = (body.get("spec") or {}).get("expirationSeconds") or 3600
            until = self._now() + dt.timedelta(seconds=seconds)
            token = f"token-of-{key.namespace}-{key.name}-{next(self._names)}"
            status = {"token": token, "expirationTimestamp": objects.timestamp(until)}
            return {**thaw(body), "status": status}
        if subresource == "eviction":
            self._delete(kind, key, (body.get("deleteOptions") or {}).get("gracePeriodSeconds"))
            return {"kind": "Status", "status": "Success"}
        if subresource == "binding":
            changed = thaw(stored)
            changed["spec"]["nodeName"] = body["target"]["name"]
            self._write(kind, key, stored, changed, _UPDATE)
            return {"kind": "Status", "status": "Success"}
        raise _error(404, "NotFound", f"{kind} has no {subresource}")

    # Behind it --------------------------------------------------------------------------------

    async def _begin(self, verb: str, kind: Kind) -> None:
        await asyncio.sleep(0)  # as with a server, others get their turn
        self.requests[verb, kind.plural] += 1
        self._raise(verb, kind, is_after=False)

    def _end(self, verb: str, kind: Kind) -> None:
        self._raise(verb, kind, is_after=True)

    def _raise(self, verb: str, kind: Kind, *, is_after: bool) -> None:
        for failure in self._failures:
            is_meant = fnmatch.fnmatch(verb, failure.verb) and failure.kind in {None, kind}
            if is_meant and failure.is_after == is_after and failure.times:
                failure.times -= 1
                raise failure.error

    def _create(self, kind: Kind, obj: Object) -> Object:
        if kind in self.answers:
            return {**obj, "status": self.answers[kind](obj)}
        metadata = obj["metadata"]
        if not metadata.get("name"):
            metadata["name"] = f"{metadata.pop('generateName')}{next(self._names):05d}"
        key = key_of(obj)
        self._check_namespace(kind, key)
        if (kind, key) in self._store:
            raise _error(409, "AlreadyExists", f'{kind.resource} "{key.name}" already exists')
        return self._write(kind, key, None, self._fresh(kind, key, obj), _UPDATE)

    def _fresh(self, kind: Kind, key: Key, obj: Object) -> Object:
        fresh = {**obj, "apiVersion": kind.api_version, "kind": kind.kind}
        status = fresh.pop("status", None)
        if status is not None and kind.plural in _WITHOUT_STATUS | _KEEP_STATUS_ON_CREATE:
            fresh["status"] = status
        if kind == keys.POD:
            fresh["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
        if kind == keys.NAMESPACE:
            fresh["status"] = {"phase": "Active"}
        metadata = fresh["metadata"]
        for name in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(name, None)
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": objects.timestamp(self._now())}
        return fresh

    def _check_namespace(self, kind: Kind, key: Key) -> None:
        if not kind.namespaced:
            return
        there = self._store.get((keys.NAMESPACE, Key("", key.namespace)))
        if there is None and self._strict:
            raise _error(404, "NotFound", f'namespaces "{key.namespace}" not found')
        if there is not None and there["metadata"].get("deletionTimestamp"):
            raise _error(403, "Forbidden", f"namespace {key.namespace} is being terminated")

    def _apply(self, kind: Kind, obj: Object, manager: str) -> Object:
        key = key_of(obj)
        stored = self._store.get((kind, key))
        if stored is None:
            self._check_namespace(kind, key)
            if obj["metadata"].get("uid"):
                raise _error(409, "Conflict", "uid mismatch: the object is not there")
            sent = ownership.fields(kind, self._without_status(kind, obj))
            made = self._write(kind, key, None, self._fresh(kind, key, obj), manager)
            self._owners[kind, key][manager] = set(sent)  # what the server adds is its own
            return made
        self._check_preconditions(stored, obj["metadata"])
        sent = ownership.fields(kind, self._without_status(kind, obj))
        owners = self._owners[kind, key]
        others = set[ownership.Path]().union(
            *(owned for other, owned in owners.items() if other != manager)
        )
        changed = thaw(stored)
        ownership.drop(changed, owners.get(manager, set()) - sent.keys() - others)
        for path, value in sent.items():
            ownership.put(changed, path, thaw(value))
        self._check_immutable(kind, stored, changed)
        is_new_owner = owners.get(manager) != sent.keys()
        made = self._write(kind, key, stored, changed, manager, is_write=is_new_owner)
        if (kind, key) in self._owners:
            self._owners[kind, key][manager] = set(sent)
        return made

    def _patch(self, kind: Kind, key: Key, changes: Object, subresource: str) -> Object:
        stored = self._existing(kind, key)
        if subresource == "status" and kind.plural in _WITHOUT_STATUS:
            raise _error(404, "NotFound", f"{kind.resource} has no status")
        self._check_preconditions(stored, changes.get("metadata") or {})
        is_shared = kind in SHARED and subresource == "status"
        merge = _shared if is_shared else _merged
        changed = thaw(merge(stored, self._allowed(kind, changes, subresource)))
        changed["metadata"].pop("managedFields", None)
        for name in ("uid", "resourceVersion", "generation", "deletionTimestamp"):
            if name in stored["metadata"]:
                changed["metadata"][name] = stored["metadata"][name]
        if subresource not in _OF_SPECS:
            self._check_immutable(kind, stored, changed)
        return self._write(kind, key, stored, changed, _UPDATE)

    def _allowed(self, kind: Kind, changes: Object, subresource: str) -> Object:
        if subresource in {"", "scale", *_OF_SPECS}:
            return self._without_status(kind, changes)
        allowed: Object = {"status": changes.get("status") or {}}
        given = changes.get("metadata") or {}
        if kind.plural in _TAKE_LABELS_WITH_STATUS:
            kept = {name: given[name] for name in ("labels", "annotations") if name in given}
            allowed["metadata"] = kept
        return allowed

    def _without_status(self, kind: Kind, obj: Object) -> Object:
        if kind.plural in _WITHOUT_STATUS:
            return obj
        return {name: value for name, value in obj.items() if name != "status"}

    def _check_preconditions(self, stored: Object, metadata: Object) -> None:
        for name in ("uid", "resourceVersion"):
            wanted = metadata.get(name)
            if wanted and wanted != stored["metadata"][name]:
                raise _error(409, "Conflict", f"the {name} is another: {wanted}")

    def _check_immutable(self, kind: Kind, old: Object, new: Object) -> None:
        if kind == keys.POD and _fixed(old["spec"]) != _fixed(new["spec"]):
            raise _error(422, "Invalid", "pod updates may not change fields of the spec")
        is_config = kind in {keys.CONFIG_MAP, keys.SECRET}
        if is_config and old.get("immutable") and old.get("data") != new.get("data"):
            raise _error(422, "Invalid", "data: field is immutable when `immutable` is set")

    def _delete(self, kind: Kind, key: Key, grace_s: int | None) -> None:
        stored = self._store[kind, key]
        changed = thaw(stored)
        metadata = changed["metadata"]
        if kind == keys.POD:
            grace_s = _grace_s(stored, grace_s)
            metadata["deletionGracePeriodSeconds"] = grace_s
        until = self._now() + dt.timedelta(seconds=grace_s or 0)
        if kind == keys.POD or not metadata.get("deletionTimestamp"):
            metadata["deletionTimestamp"] = objects.timestamp(until)
        if kind == keys.NAMESPACE:
            changed["status"] = {"phase": "Terminating"}
        self._write(kind, key, stored, changed, _UPDATE)
        if kind == keys.NAMESPACE:
            for other, where in list(self._store):
                if other.namespaced and where.namespace == key.name:
                    self._delete(other, where, 0)
            self._finish_namespace(key.name)

    def _write(  # noqa: PLR0913  # one place for all writes
        self,
        kind: Kind,
        key: Key,
        old: Object | None,
        new: Object,
        manager: str,
        *,
        is_write: bool = False,
    ) -> Object:
        if old is not None and old == new and not is_write:
            return old
        self._version += 1
        new["metadata"]["resourceVersion"] = str(self._version)
        if kind.plural not in _WITHOUT_STATUS:
            generation = (old or {"metadata": {}})["metadata"].get("generation", 0)
            is_other = old is None or _desired(old) != _desired(new)
            new["metadata"]["generation"] = generation + is_other
        self._own(kind, key, old, new, manager)
        is_gone = self._is_finished(kind, new)
        new = freeze(new)
        entry = _Entry(kind, key, old, None if is_gone else new, self._version)
        if is_gone:
            self._remove(kind, key, entry, new)
        else:
            self._store[kind, key] = new
            self._history.append(entry)
        self._notify()
        return new

    def _remove(self, kind: Kind, key: Key, entry: _Entry, last: Object) -> None:
        self._store.pop((kind, key), None)
        self._owners.pop((kind, key), None)
        self._history.append(entry._replace(old={**last}))
        if kind.namespaced:
            self._finish_namespace(key.namespace)

    def _is_finished(self, kind: Kind, obj: Object) -> bool:
        metadata = obj["metadata"]
        if not metadata.get("deletionTimestamp") or finalizers(obj) or kind == keys.NAMESPACE:
            return False
        return not metadata.get("deletionGracePeriodSeconds")

    def _finish_namespace(self, name: str) -> None:
        where = (keys.NAMESPACE, Key("", name))
        stored = self._store.get(where)
        if stored is None or not stored["metadata"].get("deletionTimestamp"):
            return
        if finalizers(stored) or any(k.namespaced and n == name for k, (n, _) in self._store):
            return
        self._version += 1
        last = thaw(stored)
        last["metadata"]["resourceVersion"] = str(self._version)
        self._remove(*where, _Entry(*where, stored, None, self._version), last)
        self._notify()

    def _own(self, kind: Kind, key: Key, old: Object | None, new: Object, manager: str) -> None:
        owners = self._owners.setdefault((kind, key), {})
        before, after = ownership.fields(kind, old or {}), ownership.fields(kind, new)
        changed = {path for path, value in after.items() if before.get(path, _Entry) != value}
        gone = before.keys() - after.keys()
        for owned in owners.values():
            owned.difference_update(changed | gone)
        owners.setdefault(manager, set()).update(changed)

    def _existing(self, kind: Kind, key: Key) -> Object:
        stored = self._store.get((kind, key))
        if stored is None:
            raise _error(404, "NotFound", f'{kind.resource} "{key.name}" not found')
        return stored

    def _notify(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def _error(code: int, reason: str, message: str) -> errors.KubeError:
    return errors.refusal(code, {"reason": reason, "message": message})


def _clean(obj: Object) -> Object:
    """A copy without nulls and managedFields, as a server keeps it."""
    cleaned: Object = _without_nulls(obj)
    cleaned["metadata"].pop("managedFields", None)
    return cleaned


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _merged(old: Any, changes: Any) -> Any:
    if not isinstance(changes, dict):
        return thaw(changes)
    merged = dict(old) if isinstance(old, dict) else {}
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged


_BY: Final = {"conditions": "type", "podIPs": "ip", "hostIPs": "ip", "addresses": "type"}
"""Lists of a status that a strategic merge patch merges, and by which field."""


def _shared(old: Object, changes: Object) -> Object:
    """Return the pod or node ``old`` after a strategic merge patch of its status."""
    status = dict(changes.get("status") or {})
    lists = {name: status.pop(name) for name in _BY if status.get(name) is not None}
    merged = cast("Object", _merged(old, {**changes, "status": status}))
    for name, items in lists.items():
        have = (old.get("status") or {}).get(name) or []
        merged["status"][name] = _by_field(have, items, _BY[name])
    return merged


def _by_field(have: list[Object], items: list[Object], field: str) -> list[Object]:
    if {"$patch": "replace"} in items:
        return [thaw(item) for item in items if "$patch" not in item]
    made = {item[field]: item for item in have}
    for item in items:
        if item.get("$patch") == "delete":
            made.pop(item[field], None)
        else:
            made[item[field]] = _merged(made.get(item[field]), item)
    return list(made.values())


def _desired(obj: Object) -> Object:
    return {name: value for name, value in obj.items() if name not in {"metadata", "status"}}


def _fixed(spec: Object) -> Object:
    fixed = {name: value for name, value in spec.items() if name not in _MUTABLE_IN_POD}
    for name in ("containers", "initContainers"):
        fixed[name] = [{**container, "image": ""} for container in spec.get(name) or []]
    if spec.get("schedulingGates"):
        fixed.pop("nodeSelector", None)
        fixed.pop("affinity", None)
    return fixed


def _grace_s(pod: Object, asked_s: int | None) -> int:
    is_bound = bool(pod["spec"].get("nodeName"))
    is_over = (pod.get("status") or {}).get("phase") in {"Failed", "Succeeded"}
    if not is_bound or is_over:
        return 0
    default_s = pod["spec"].get("terminationGracePeriodSeconds", 30)
    grace_s = int(default_s if asked_s is None else asked_s)
    before = pod["metadata"].get("deletionGracePeriodSeconds")
    return grace_s if before is None else min(grace_s, int(before))


def _event(of: Selection[T], entry: _Entry) -> Event[T] | None:
    if entry.kind != of.kind:
        return None
    was = entry.old is not None and _selects(of, entry.old)
    is_now = entry.new is not None and _selects(of, entry.new)
    if not was and not is_now:
        return None
    type_ = "DELETED" if not is_now else "MODIFIED" if was else "ADDED"
    obj = entry.new if is_now else entry.old
    assert obj is not None
    version = str(entry.version)
    told = {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}
    return Event(type_, entry.key, version, _shaped(of, told))


def _shaped(of: Selection[T], obj: Object) -> T:
    if get_origin(of.shape) is dict:
        size = len(msgspec.json.encode(obj)) if of.whole_up_to else 0
        frozen: T = freeze(decode.kept(of, obj, size))
        return frozen
    if packed := decode.packed(of.shape):
        key = key_of(obj)
        if of.keeps is None or of.keeps(key):
            return cast("T", packed.cached(obj))
        return cast("T", packed.noted(key, msgspec.convert(obj["metadata"], Version)))
    return msgspec.json.decode(msgspec.json.encode(obj), type=of.shape)


def _selects(of: Selection[Any], obj: Object) -> bool:
    if of.namespace and obj["metadata"].get("namespace") != of.namespace:
        return False
    return _has_labels(of.labels, labels(obj)) and _has_fields(of.fields, obj)


def _has_fields(selector: str, obj: Object) -> bool:
    for term in filter(None, selector.split(",")):
        path, _, wanted = term.replace("==", "=").partition("=")
        is_other = path.endswith("!")
        value: Any = obj
        for name in path.removesuffix("!").split("."):
            value = value.get(name, "") if isinstance(value, dict) else ""
        if (str(value) == wanted) == is_other:
            return False
    return True


def _has_labels(selector: str, have: dict[str, str]) -> bool:
    return all(_has_label(term.strip(), have) for term in _terms(selector))


def _terms(selector: str) -> list[str]:
    terms, depth, term = [], 0, ""
    for letter in selector:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            terms.append(term)
            term = ""
        else:
            term += letter
    return [*terms, term] if term.strip() else terms


def _has_label(term: str, have: dict[str, str]) -> bool:
    if "(" in term:
        name, operator, values = term.replace("(", " ( ").split(maxsplit=2)
        among = {value.strip() for value in values.strip(" ()").split(",")}
        return (have.get(name) in among) == (operator == "in")
    if term.startswith("!"):
        return term[1:].strip() not in have
    name, equals, value = term.replace("==", "=").partition("=")
    if not equals:
        return name.strip() in have
    is_other = name.endswith("!")
    return (have.get(name.rstrip("!").strip()) == value.strip()) != is_other
