"""``liqoctl why``: looking for what explains a pod or a namespace; nothing is written."""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from typing import Final, TypeVar

import click

from apis import keys, objects, reflectionpolicy
from apis.objects import Key, Kind, Object
from kube import errors
from kube.cluster import Cluster
from liqoctl import clusters, options, output, reflections
from liqoctl.clusters import Side, listed
from liqoctl.forge import reflections as forge
from liqoctl.forge import why, whynamespace, whypod
from liqoctl.forge.findings import Facts
from liqoctl.forge.reflections import Contents, Line

T = TypeVar("T")
_MOST_NAMES: Final = 5


@options.verb("liqoctl why pod web-0 -n foo", "liqoctl why namespace foo", name="why")
def why_() -> None:
    """Explain where a pod runs, or how a namespace is offloaded.

    Reads only. The verdict is one sentence; what it rests on and what to do follow.
    """


@why_.command(
    "pod",
    "liqoctl why pod web-5d9c7b6f4-x2x8z -n foo",
    "liqoctl why pod web -n foo                  # refused: name what should have created it",
    "liqoctl why pod web-0 -n foo -o json | jq -r .verdict",
)
@clusters.named("name", keys.POD)
@options.TEXT_OUTPUT
@clusters.on_cluster()
async def why_pod(side: Side, name: str, form: str) -> None:
    """Explain why a pod runs where it does, waits, or was refused.

    Tells how its namespace is offloaded, which nodes match the pod now and what keeps it off the
    others, what the provider said, what of the objects that the pod mentions its provider has not,
    and what to do. A pod that was refused does not exist: its name,
    or that of its ReplicaSet, Job, StatefulSet or Deployment, finds the refusal by its events.

    Exit status: 0 when the pod or a refusal is found, else 1.
    """
    show(await pod(side.cluster, Key(side.namespace, name)), form)


@why_.command(
    "namespace", "liqoctl why namespace foo", "liqoctl why ns foo -o json | jq -r .outcome"
)
@clusters.named("name", keys.NAMESPACE)
@options.TEXT_OUTPUT
@clusters.on_cluster()
async def why_namespace(side: Side, name: str, form: str) -> None:
    """Explain how a namespace is offloaded: to which clusters, and what is wrong.

    Tells strategy, selector and phase, the reason of each cluster, which nodes its pods may go to,
    which pods were refused here or by a provider, and what to do.

    Exit status: 0 when the namespace is found, else 1.
    """
    await clusters.check_installed(side)
    show(await namespace(side.cluster, name), form)


async def pod(cluster: Cluster, key: Key) -> Object:
    """Return the answer for the pod ``key``, or for what was refused in its place.

    Raises:
        click.ClickException: neither is there.
    """
    facts, found = await asyncio.gather(
        _facts(cluster, key.namespace), cluster.get_live(keys.POD, key)
    )
    reading = _creations(cluster, key.namespace) if found is None else _told_of(cluster, key)
    events, note = await _allowed(reading, "events")
    facts = replace(facts, pod=found, events=events or (), notes=(*facts.notes, *note))
    if found is not None:
        facts = await _with_objects(cluster, found, facts)
    answer = why.of_pod(facts, key.name)
    if answer is None:
        raise click.ClickException(await _absence(cluster, key, facts))
    return answer


async def namespace(cluster: Cluster, name: str) -> Object:
    """Return the answer for the namespace ``name``.

    Raises:
        click.ClickException: it does not exist.
    """
    waiting = listed(cluster, keys.POD, name, "status.phase=Pending")
    facts, (events, no_events), (pending, no_pods) = await asyncio.gather(
        _facts(cluster, name),
        _allowed(_creations(cluster, name), "events"),
        _allowed(waiting, "pods"),
    )
    notes = (*facts.notes, *no_events, *no_pods)
    return why.of_namespace(replace(facts, events=events or (), pending=pending or (), notes=notes))


def show(answer: Object, form: str) -> None:
    if form == "text":
        output.echo("\n".join(why.lines(answer)))
    else:
        output.dump([answer], form)


async def _facts(cluster: Cluster, name: str) -> Facts:
    key = Key(name, keys.OFFLOADING_NAME)
    (about, _), (offloading, no_offloading), (nodes, no_nodes) = await asyncio.gather(
        _allowed(_existing(cluster, name), "the namespace"),
        _allowed(cluster.get_live(keys.NAMESPACE_OFFLOADING, key), "namespaceoffloadings"),
        _allowed(listed(cluster, keys.NODE), "nodes"),
    )
    return Facts(
        name,
        about=about or {"metadata": {"name": name}},
        offloading=offloading,
        is_offloading_known=not no_offloading,
        nodes=nodes,
        notes=(*no_offloading, *no_nodes),
    )


async def _existing(cluster: Cluster, name: str) -> Object:
    found = await cluster.get_live(keys.NAMESPACE, Key("", name))
    if found is None:
        raise click.ClickException(f"namespace {name} does not exist")
    return found


async def _allowed(reading: Awaitable[T], what: str) -> tuple[T | None, tuple[str, ...]]:
    """Return what ``reading`` gives and no note; None and a note if that is forbidden."""
    try:
        return await reading, ()
    except errors.ForbiddenError:
        return None, (f"you may not read {what}, so nothing is said of that",)


async def _creations(cluster: Cluster, namespace: str) -> list[Object]:
    """Return the events about pods that were created, or were not."""
    found = await asyncio.gather(
        *(
            listed(cluster, keys.EVENT, namespace, f"reason={reason}")
            for reason in (whynamespace.FAILED, whynamespace.CREATED)
        )
    )
    return [event for events in found for event in events]


async def _told_of(cluster: Cluster, key: Key) -> list[Object]:
    about = f"involvedObject.kind=Pod,involvedObject.name={key.name}"
    return await listed(cluster, keys.EVENT, key.namespace, about)


async def _with_objects(cluster: Cluster, pod: Object, facts: Facts) -> Facts:
    """Return ``facts`` with what keeps ``pod`` from a node, or what does not follow it to one."""
    if not objects.spec(pod).get("nodeName"):
        return await _with_claims(cluster, pod, facts)
    provider = whypod.cluster_of(whypod.node_of(facts, pod))
    return await _with_staying(cluster, pod, provider, facts) if provider else facts


async def _with_staying(cluster: Cluster, pod: Object, provider: str, facts: Facts) -> Facts:
    wanted, where = whypod.mentioned(pod), objects.key_of(pod).namespace
    reading = (
        _allowed(_named(cluster, kind, where, names), kind.plural) for kind, names in wanted.items()
    )
    read = await asyncio.gather(*reading)
    by_kind = {kind: found or [] for kind, (found, _) in zip(wanted, read, strict=True)}
    asked = reflectionpolicy.asked_policy(facts.offloading) if facts.offloading else None
    contents = Contents(asked, by_kind, [pod])
    lines, unseen = await _allowed(
        _staying(cluster, contents, provider, where), "how virtual nodes reflect"
    )
    notes = [note for _, said in read for note in said] + list(unseen)
    new = (note for note in notes if note not in facts.notes)
    return replace(facts, staying=lines or (), notes=(*facts.notes, *new))


async def _staying(cluster: Cluster, contents: Contents, provider: str, where: str) -> list[Line]:
    claims = contents.by_kind[keys.PERSISTENT_VOLUME_CLAIM]
    if not any(contents.by_kind.values()):
        return []
    (peer,), volumes, events = await asyncio.gather(
        reflections.known_peers(cluster, [(provider, "")]),
        reflections.volumes_of(cluster, claims),
        listed(cluster, keys.EVENT, where),
    )
    known = replace(contents, volumes=volumes, failures=forge.failures(events))
    return forge.staying(known, peer)


async def _named(cluster: Cluster, kind: Kind, where: str, names: Iterable[str]) -> list[Object]:
    found = await asyncio.gather(*(cluster.get_live(kind, Key(where, name)) for name in names))
    return [each for each in found if each is not None]


async def _with_claims(cluster: Cluster, pod: Object, facts: Facts) -> Facts:
    """Return ``facts`` with the claims for which ``pod`` waits, and what was said of them."""
    names = whypod.claims(pod)
    where = objects.key_of(pod).namespace
    if not names:
        return facts
    kind = keys.PERSISTENT_VOLUME_CLAIM
    claims, no_claims = await _allowed(listed(cluster, kind, where), kind.plural)
    events, no_events = await _allowed(
        listed(cluster, keys.EVENT, where, f"involvedObject.kind={kind.kind}"), "events"
    )
    there = {objects.key_of(claim).name: claim for claim in claims or ()}
    waiting = [
        there.get(name) or objects.named(kind, Key(where, name))
        for name in (names if claims is not None else ())
        if objects.status(there.get(name)).get("phase") != "Bound"
    ]
    notes = tuple(note for note in (*no_claims, *no_events) if note not in facts.notes)
    return replace(facts, claims=waiting, claim_events=events or (), notes=(*facts.notes, *notes))


async def _absence(cluster: Cluster, key: Key, facts: Facts) -> str:
    """Return that there is nothing at ``key``, with what may have been meant."""
    unseen = "".join(f"; {note}" for note in facts.notes if "events" in note)
    message = f"pod {key} does not exist, and no event tells that it was refused{unseen}"
    there, _ = await _allowed(listed(cluster, keys.POD, key.namespace), "pods")
    names = sorted(objects.key_of(pod).name for pod in there or ())
    similar = [name for name in names if name.startswith(key.name)][:_MOST_NAMES]
    return f"{message}; did you mean {', '.join(similar)}?" if similar else message
