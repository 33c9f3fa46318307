"""CONTRIBUTING.md names files that are there, and what its recipes say is enough.

Those of an admission rule, a command and a field are shown by tests/webhook/test_app.py,
tests/liqoctl/test_commands.py and tests/apis/test_offloading.py.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apis import keys
from apis.objects import Key, Kind, Object, labels, named
from apis.offloading import MappedNamespace
from apis.reflection import ReflectedKind
from controllers.__main__ import CONTROLLERS
from controllers.manager import Controller, Limits
from kube import flags
from kube.cache import CachedCluster
from kube.cluster import Selection
from kube.controller import WatchSource
from kube.flags import flag
from reflector.kinds import contract
from reflector.kinds.contract import KindReflection, ReflectionContext
from reflector.reflection import Reflection, ReflectionClients
from tests.controllers.support import manager_of
from tests.controllers.whole import controlling
from tests.fakes import FakeCluster
from tests.kube.running import until
from tests.world import remove

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")


def test_every_file_and_folder_that_a_recipe_names_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    recipes = text.partition("## Adding things")[2].partition("- **A top-level package**")[0]

    named = NAMED.findall(recipes)

    assert len(named) > 20
    assert not [name for name in named if not (ROOT / name).exists()]


class Greeting(Controller):
    """A controller as its recipe has it: what is missing is its row."""

    name = "greeting"

    def watches(self) -> Sequence[WatchSource[Any]]:
        return [self.watch(Selection(keys.NAMESPACE, Object))]

    async def reconcile(self, key: Key) -> float | None:
        await self.live.patch(keys.NAMESPACE, key, {"metadata": {"labels": {"is": "greeted"}}})
        return None


async def test_a_controller_is_a_class_and_its_row() -> None:
    cluster = FakeCluster()
    await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", "early")))

    def greeted() -> set[str]:
        found = cluster.everything().items()
        return {key.name for (_, key), obj in found if labels(obj) == {"is": "greeted"}}

    async with controlling(cluster, Greeting.setup):
        await until(lambda: greeted() == {"early"})
        await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", "late")))
        await until(lambda: greeted() == {"early", "late"})


async def test_each_row_is_a_controller_of_a_name_of_its_own() -> None:
    with_all = Limits(
        is_enforced=True, is_node_failure_handled=True, makes_profiles=True, has_fabric=True
    )
    manager = manager_of(FakeCluster(), limits=with_all)
    names = [[loop.name for loop in row(manager)()] for row in CONTROLLERS]

    assert all(names)
    assert len({name for loops in names for name in loops}) == sum(map(len, names))


@dataclass(frozen=True, kw_only=True)
class GreetingOptions:
    """Options as the recipe of a flag has them."""

    wait_s: float = flag("until it gives up", "--wait", default="40s", type=flags.duration)


def test_a_flag_is_a_field_of_the_options() -> None:
    parser = argparse.ArgumentParser()

    assert flags.parsed(parser, GreetingOptions, ["--wait=1m30s"]).wait_s == 90
    assert "--wait" in parser.format_help()
    assert "until it gives up" in parser.format_help()
    assert flags.parsed(argparse.ArgumentParser(), GreetingOptions, []).wait_s == 40


async def test_a_reflected_kind_is_a_row_and_a_function() -> None:
    kind = Kind("example.org", "v1", "Greeting", "greetings")
    home, foreign, here = FakeCluster(), FakeCluster(), Key("shop", "hello")
    await home.create(kind, named(kind, here, spec={"text": "hello"}))

    def twin(local: Object, context: ReflectionContext) -> Object:
        return contract.remote_object(kind, local, context, keep=["spec"])

    reflection = Reflection(
        KindReflection(ReflectedKind("greeting", kind, kind), twin),
        ReflectionContext(MappedNamespace("rome", "milan", "shop", "shop-rome")),
        ReflectionClients(CachedCluster(home), CachedCluster(foreign), lambda *_: None),
    )
    await reflection.reconcile(here)
    made = await foreign.get(kind, Key("shop-rome", "hello"))
    assert made is not None
    assert made["spec"] == {"text": "hello"}

    await remove(home, kind, here)
    await reflection.reconcile(here)
    assert await foreign.get(kind, Key("shop-rome", "hello")) is None
