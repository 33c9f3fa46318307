"""Argo CD installs pyliqo from its chart and keeps two clusters from git, and stays Synced."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from apis import keys
from apis.objects import Key, Kind, Object, named
from kube import clock
from sandbox import images, install
from tests import pages
from tests.journeys import argocd, world
from tests.journeys.argocd import ArgoCD
from tests.journeys.three import THIRD, Three
from tests.manifests import chart

EXAMPLES: Final = Path(__file__).parents[2] / "docs/examples"
AUTHORITY: Final = Key(keys.LIQO_NAMESPACE, "liqo-ca")
JUDGED: Final = ("Tenant", "ResourceSlice", "NamespaceOffloading")
"""Kinds whose health `docs/examples/argocd-health.yaml` tells."""
APPLIES: Final = re.compile(r'^kubectl --kubeconfig "\$\w+" apply .*-k fleet/(\S+)$', re.MULTILINE)

pytestmark = [pytest.mark.journey, pytest.mark.skipif(not argocd.FOLDER, reason=argocd.HOW)]


@pytest.fixture
async def argo(unpeered: Three, tmp_path: Path) -> AsyncIterator[ArgoCD]:
    """Run it beside the clusters; it keeps its Applications in rome, and knows the third one."""
    own = tmp_path / "argocd"
    own.mkdir()
    with argocd.running(unpeered.kubeconfigs["rome"], own) as running:
        running.knows(THIRD, unpeered.kubeconfigs[THIRD])
        health = f"--patch-file={EXAMPLES / 'argocd-health.yaml'}"
        running.kubectl.run("-n", argocd.NAMESPACE, "patch", "configmap", "argocd-cm", health)
        yield running
        running.kubectl.run("-n", argocd.NAMESPACE, "delete", "applications", "--all")
        running.kubectl.run("delete", "namespace", argocd.NAMESPACE)


@pytest.fixture
async def given_back(unpeered: Three) -> AsyncIterator[None]:
    """Install the third cluster again as it was, once Argo CD does not keep it any more."""
    yield
    command = [*install.command(THIRD), "--enable-resource-enforcement"]
    await asyncio.to_thread(install.run, unpeered.kubeconfigs[THIRD], *command)


def repository(folder: Path) -> str:
    """Make a repository of what is in ``folder``, and return its address."""
    who = "-c user.name=platform -c user.email=platform@example.com"
    pages.shell(f"git init --quiet; git add .; git {who} commit --quiet -m All", folder)
    return f"file://{folder}"


def pointed(file: Path, name: str, address: str) -> list[Any]:
    """Return the Applications of ``file``, with the repository and the provider of the test."""
    text = file.read_text(encoding="utf-8").replace("milan", name)
    found = list(yaml.safe_load_all(text))
    for application in found:
        application["spec"]["source"]["repoURL"] = address
    return found


def is_settled(since: datetime) -> Callable[[Object], bool]:
    def judge(application: Object) -> bool:
        status = application.get("status", {})
        how = (status.get("sync", {}).get("status"), status.get("health", {}).get("status"))
        looked = datetime.fromisoformat(status.get("reconciledAt", "2000-01-01T00:00:00Z"))
        return how == ("Synced", "Healthy") and looked > since

    return judge


async def test_what_its_chart_installs_stays_synced_when_certificates_change(
    given_back: None, argo: ArgoCD, unpeered: Three, tmp_path: Path
) -> None:
    shutil.copytree(chart.CHART, tmp_path / "pyliqo/charts/pyliqo")
    (application,) = pointed(
        EXAMPLES / "argocd-application.yaml", THIRD, repository(tmp_path / "pyliqo")
    )
    application["spec"]["destination"] = {"name": THIRD, "namespace": keys.LIQO_NAMESPACE}
    application["spec"]["source"]["targetRevision"] = "HEAD"
    values = {"clusterId": THIRD, "image": images.product_name()}
    application["spec"]["source"]["helm"]["valuesObject"] = values
    argo.kubectl.apply([application])
    key = Key(argocd.NAMESPACE, "pyliqo")
    rome, there = unpeered["rome"], unpeered[THIRD]
    before = await world.until_one(rome, argocd.APPLICATION, key, is_settled(clock.now()))

    hooks = Key("", keys.WEBHOOK_SERVICE)
    trusted = bundle(await there.get_live(keys.MUTATING_WEBHOOKS, hooks) or {})
    await world.remove(there, keys.SECRET, AUTHORITY)  # so another one is made
    renewed = await world.until_one(
        there, keys.MUTATING_WEBHOOKS, hooks, lambda found: bundle(found) not in {trusted, ""}
    )
    after = await world.until_one(rome, argocd.APPLICATION, key, is_settled(clock.now()))

    assert bundle(await there.get_live(keys.MUTATING_WEBHOOKS, hooks) or {}) == bundle(renewed)
    operations = [one["status"]["operationState"]["finishedAt"] for one in (before, after)]
    assert operations[0] == operations[1], "it wrote what the certificates had changed"


def bundle(configuration: Object) -> str:
    return str(configuration["webhooks"][0]["clientConfig"].get("caBundle", ""))


async def test_it_peers_and_offloads_from_git(
    argo: ArgoCD, unpeered: Three, tmp_path: Path
) -> None:
    """What the guide applies is committed instead, and Argo CD does the rest."""
    fleet = pointed(EXAMPLES / "argocd-fleet.yaml", THIRD, f"file://{tmp_path / 'fleet'}")
    applications = tmp_path / "applications.yaml"
    applications.write_text(yaml.safe_dump_all(fleet))

    def committed(block: str) -> str:
        """Commit what the guide applies. Before it deletes, delete the Applications."""
        first = 'kubectl --kubeconfig "$CONSUMER" -n argocd delete applications --all\n'
        block = APPLIES.sub(r"commit_and_sync \1", block)
        block = block.replace("commit --quiet", "commit --allow-empty --quiet")
        return argocd.COMMIT_AND_SYNC + (first if " delete " in block else "") + block

    said = await unpeered.type_guide("gitops.md", tmp_path, committed, APPLICATIONS=applications)

    judged = "".join(said)
    assert all(f"{kind} Healthy\n" in judged for kind in JUDGED), judged
    assert await unpeered.quotas() == []


def conditions(kind: Kind, *found: tuple[str, str]) -> Object:
    told = [{"type": type_, "status": status, "message": "m"} for type_, status in found]
    return named(kind, Key("space", "name"), status={"conditions": told})


def phase(said: str, seen: int = 1) -> Object:
    status = {"offloadingPhase": said, "observedGeneration": seen}
    key = Key("space", keys.OFFLOADING_NAME)
    return named(keys.NAMESPACE_OFFLOADING, key, metadata={"generation": 1}, status=status)


@pytest.mark.parametrize(
    ("obj", "health"),
    [
        (named(keys.TENANT, Key("space", "name")), "Progressing"),
        (conditions(keys.TENANT, ("Ready", "False")), "Degraded m"),
        (conditions(keys.TENANT, ("Ready", "True")), "Healthy m"),
        (conditions(keys.RESOURCE_SLICE, ("Authentication", "Accepted")), "Progressing"),
        (conditions(keys.RESOURCE_SLICE, ("Resources", "Denied")), "Degraded m"),
        (phase("Ready"), "Healthy Ready"),
        (phase("Ready", seen=0), "Progressing"),
        (phase("SomeFailed"), "Degraded SomeFailed"),
        (phase("InProgress"), "Progressing InProgress"),
        (conditions(keys.VIRTUAL_NODE, ("Node", "Creating")), "Progressing"),
        (conditions(keys.VIRTUAL_NODE, ("Node", "Running")), "Healthy m"),
    ],
)
def test_it_tells_the_health_of_each_kind(obj: Object, health: str, tmp_path: Path) -> None:
    said = yaml.safe_load((EXAMPLES / "argocd-health.yaml").read_text(encoding="utf-8"))
    labels = {"app.kubernetes.io/part-of": "argocd"}
    key = Key(argocd.NAMESPACE, "argocd-cm")
    settings = named(keys.CONFIG_MAP, key, metadata={"labels": labels}, **said)
    (tmp_path / "cm.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "object.yaml").write_text(yaml.safe_dump(obj))

    told = pages.shell(
        f"{argocd.FOLDER}/argocd admin settings resource-overrides health object.yaml "
        "--argocd-cm-path cm.yaml --load-cluster-settings=false",
        tmp_path,
    )
    status, message = (line.partition(": ")[2] for line in told.splitlines())

    assert f"{status} {message}".startswith(health), told
