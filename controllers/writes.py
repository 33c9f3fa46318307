"""The writes that every reconciler makes: only what differs, only what is ours, never blindly."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from apis import allowlist, apply, keys, objects
from apis.objects import Key, Kind, Object
from kube import errors
from kube.cluster import Cluster
from kube.controller import TerminalError
from kube.errors import (
    AlreadyExistsError,
    BusyError,
    ConflictError,
    ForbiddenError,
    KubeError,
    NotFoundError,
)

T = TypeVar("T")

MANAGER: Final = "liqo-controllers"
WHOLE: Final[dict[Kind, str]] = {keys.DEPLOYMENT: "spec"}
"""Parts that are ours alone: what is not wanted (any more) goes, and servers fill in defaults
again.

Of all other objects only lists are ours alone, such as rules and subjects.
"""

logger = logging.getLogger(__name__)


def owned_by(owner: Object) -> Callable[[Object], bool]:
    return lambda found: objects.is_controlled_by(found, owner)


def same_uid(uid: str) -> Callable[[Object], bool]:
    return lambda found: objects.uid(found) == uid


async def ensure(
    cluster: Cluster, kind: Kind, wanted: Object, *, is_ours: Callable[[Object], bool]
) -> Object:
    """Return the object as the server has it, after making it keep ``wanted``.

    Raises:
        TerminalError: the name is taken by an object that is not ours.
    """
    key = objects.key_of(wanted)
    if kind in WHOLE:
        wanted = apply.stamped(wanted)  # so that the stamp shows what is no longer wanted
    found = await cluster.get(kind, key)
    if found is None:
        return await _create(cluster, kind, wanted, is_ours)
    if not is_ours(found):
        raise TerminalError(
            "NameTaken", f"{kind} {key} exists and is not ours: rename or remove it"
        )
    if apply.keeps(found, wanted):
        return found
    if found.get("roleRef") != wanted.get("roleRef"):  # the one part that no update changes
        await cluster.delete(kind, key, uid=objects.uid(found))
        return await _create(cluster, kind, wanted, is_ours)
    logger.info("Updating object", extra={"kind": str(kind), "key": str(key)})
    if part := WHOLE.get(kind):
        return await cluster.patch(kind, key, _replacement(found, wanted, part))
    return await cluster.apply(kind, wanted, manager=MANAGER)


def _replacement(found: Object, wanted: Object, part: str) -> Object:
    """Return the merge patch that makes ``part`` of ``found`` what is wanted, and nothing else.

    Metadata is added to, and the version makes it compare-and-swap.
    """
    metadata = {name: wanted["metadata"].get(name) or {} for name in ("labels", "annotations")} | {
        "resourceVersion": found["metadata"]["resourceVersion"]
    }
    return {"metadata": metadata, part: objects.merge_patch(found[part], wanted[part])}


async def _create(
    cluster: Cluster, kind: Kind, wanted: Object, is_ours: Callable[[Object], bool]
) -> Object:
    key = objects.key_of(wanted)
    logger.info("Creating object", extra={"kind": str(kind), "key": str(key)})
    try:
        return await cluster.create(kind, wanted)
    except AlreadyExistsError as error:
        found = await cluster.get_live(kind, key)
        if found is not None and is_ours(found):
            return found
        raise ConflictError(f"{kind} {key} appeared meanwhile") from error


async def remove(
    cluster: Cluster, kind: Kind, key: Key, *, is_ours: Callable[[Object], bool]
) -> bool:
    """Ask for the deletion of an object if it is ours, by a live read; whether it is gone, for us.

    A namesake that is not ours counts as gone.
    """
    found = await cluster.get_live(kind, key)
    if found is None or not is_ours(found):
        return True
    if not objects.is_terminating(found):
        logger.info("Deleting object", extra={"kind": str(kind), "key": str(key)})
        uid = objects.uid(found)
        await _with_room(cluster, kind, found, lambda: cluster.delete(kind, key, uid=uid))
    return False


async def _with_room(
    cluster: Cluster, kind: Kind, obj: Object, write: Callable[[], Awaitable[T]]
) -> T:
    """Return what ``write`` of an object that goes returns; one that is too large is emptied first.

    Whoever filled it to the last byte keeps it from being deleted, or let go, else: X3, X4.
    """
    try:
        return await write()
    except KubeError as error:
        if not errors.is_too_large(error):
            raise
        key = objects.key_of(obj)
        logger.warning(
            "Emptying object", extra={"kind": str(kind), "key": str(key), "why": str(error)}
        )
        await cluster.patch(kind, key, allowlist.emptied(obj))
    return await write()


async def set_finalizers(
    cluster: Cluster, kind: Kind, obj: Object, finalizers: Sequence[str]
) -> Object:
    """Return that very object, as it was read, with these finalizers."""
    key, version = objects.key_of(obj), obj["metadata"]["resourceVersion"]
    changes = {"metadata": {"finalizers": list(finalizers), "resourceVersion": version}}

    async def write() -> Object:
        return await cluster.patch(kind, key, changes)

    lets_go = len(finalizers) < len(objects.finalizers(obj))
    return await (_with_room(cluster, kind, obj, write) if lets_go else write())


async def write_status(cluster: Cluster, kind: Kind, obj: Object, status: Object) -> Object:
    """Make ``status`` the whole status of that very object; no write when it is already."""
    changes = objects.merge_patch(objects.status(obj), status)
    if not changes:
        return obj
    key, metadata = objects.key_of(obj), {"uid": objects.uid(obj)}

    async def write() -> Object:
        return await cluster.patch_status(kind, key, changes, metadata=metadata)

    return await (_with_room(cluster, kind, obj, write) if objects.is_terminating(obj) else write())


async def add_finalizer(cluster: Cluster, kind: Kind, obj: Object, finalizer: str) -> Object:
    """Return ``obj`` with our finalizer: no effect outside of it before that."""
    present = objects.finalizers(obj)
    if finalizer in present:
        return obj
    return await set_finalizers(cluster, kind, obj, [*present, finalizer])


async def remove_finalizer(cluster: Cluster, kind: Kind, obj: Object, finalizer: str) -> Object:
    """Let ``obj`` go, as far as we are concerned; return it as it is then."""
    present = objects.finalizers(obj)
    if finalizer not in present:
        return obj
    left = [each for each in present if each != finalizer]
    return await set_finalizers(cluster, kind, obj, left)


async def evict(cluster: Cluster, pod: Object) -> bool:
    """Ask that very pod to leave its node, as far as disruption budgets allow; whether it does."""
    key = objects.key_of(pod)
    request = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "deleteOptions": {"preconditions": {"uid": objects.uid(pod)}},
    }
    try:
        await cluster.post(keys.POD, key, "eviction", request)
    except BusyError:
        logger.info("Eviction awaits a disruption budget", extra={"pod": str(key)})
        return False
    except (NotFoundError, ConflictError):
        return True  # it left by itself, and may have a namesake
    except ForbiddenError as error:
        # A namespace that is being deleted answers so, and the pod goes with it.
        logger.warning("Pod was not evicted", extra={"pod": str(key), "reason": str(error)})
        return False
    logger.info("Evicting pod", extra={"pod": str(key)})
    return True


async def each(items: Iterable[T], work: Callable[[T], Awaitable[object]]) -> list[Exception]:
    """Return why ``work`` failed for some of ``items``: no other waits for those."""
    failures = list[Exception]()
    for item in items:
        try:
            await work(item)
        except (KubeError, TerminalError) as error:
            failures.append(error)
    return failures


def raise_all(failures: Sequence[Exception]) -> None:
    """Raise what was collected, so that the queue tries again; nothing for no failure."""
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup("several parts were refused", failures)
