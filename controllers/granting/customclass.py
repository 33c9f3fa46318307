"""What a provider needs to serve a slice class of its own: say what each slice gets, and run.

The rest stays pyliqo's: who may ask (authentication), the Quota, the virtual node at the consumer.
``docs/examples/gold_class.py`` is a whole controller. Source: docs/parity.md § 4.16.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from apis import keys, objects, ownership, slices
from apis.objects import Key, Object
from apis.slices import ResourceSlice
from kube import client, clock
from kube.cluster import Cluster, Selection
from kube.controller import Runner, WatchSource
from kube.informer import Informer


@dataclass(frozen=True)
class Answer:
    """What a slice gets, or why it gets nothing."""

    resources: Mapping[str, str] = field(default_factory=dict)
    """Shape: {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}."""
    message: str = "granted"
    is_accepted: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of the status: storageClasses, nodeLabels, nodeSelector, ..."""


Allocate: TypeAlias = Callable[[ResourceSlice], Awaitable[Answer]]
"""Called for each slice of the class when it changes, and again after ``again_s``."""


@dataclass(frozen=True)
class CustomClassReconciler:
    """One replica of the class: its resources and their condition, and nothing else."""

    cluster: Cluster
    class_: str
    allocate: Allocate
    clock: Callable[[], datetime] = clock.now
    again_s: float | None = None

    async def reconcile(self, key: Key) -> float | None:
        obj = await self.cluster.get(keys.RESOURCE_SLICE, key)
        if obj is None or not self._is_mine(obj):
            return None
        try:
            answer = await self.allocate(ResourceSlice.parse(obj))
        except ValueError as error:
            answer = Answer({}, str(error), is_accepted=False)
        await self._write(obj, answer)
        return self.again_s

    def _is_mine(self, obj: Object) -> bool:
        is_asked = objects.spec(obj).get("class") == self.class_
        is_let_in = slices.is_accepted(obj, slices.AUTHENTICATION)
        return (
            is_asked and is_let_in and ownership.is_foreign(obj) and not objects.is_terminating(obj)
        )

    async def _write(self, obj: Object, answer: Answer) -> None:
        before = objects.status(obj)
        said = slices.ACCEPTED if answer.is_accepted else slices.DENIED
        told = objects.set_condition(
            before.get("conditions"), slices.RESOURCES, said,
            f"ResourceSliceResources{said}", answer.message, self.clock(),
        )  # fmt: skip
        granted = {"resources": dict(answer.resources)} if answer.is_accepted else {}
        changes = objects.merge_patch(
            before, {**before, **granted, **answer.extra, "conditions": told}
        )
        if changes:  # of that very version: the other condition in it is pyliqo's
            version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            await self.cluster.patch_status(
                keys.RESOURCE_SLICE, objects.key_of(obj), changes, metadata=version
            )


async def serve(
    class_: str, allocate: Allocate, *, kubeconfig: Path | None = None, again_s: float | None = None
) -> None:
    """Answer the slices of a class for ever; without a kubeconfig as the pod's ServiceAccount.

    Its rights: get, list, watch resourceslices and patch resourceslices/status.
    """
    async with client.connect(kubeconfig, user_agent=f"slice-class-{class_}") as cluster:
        replicas = Selection(keys.RESOURCE_SLICE, Object, labels=ownership.REPLICAS)
        informer: Informer[Object] = Informer(replicas)
        reconciler = CustomClassReconciler(cluster, class_, allocate, again_s=again_s)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run(cluster))
            tasks.create_task(Runner(class_, reconciler, [WatchSource(informer)]).run())


def run(class_: str, allocate: Allocate, **rest: Any) -> None:
    """Do the same as a whole program, until it is interrupted."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(class_, allocate, **rest))
