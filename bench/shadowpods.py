"""``python -m bench.shadowpods [NUMBER]``: what admission costs a provider for each ShadowPod.

One API server with all policies of the manifests and the webhook as it is installed, and so many
ShadowPods as a virtual kubelet forges and sends them. Printed: seconds of all policies by the API
server's own count, and calls of webhooks. ``apiserver_validating_admission_policy_check_duration_
seconds`` counts refusals only; the admission plugin of the policies counts what passes as well. It
runs in any checkout, so that two commits can be compared.
"""

import asyncio
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from apis import keys
from apis.objects import Key
from apis.offloading import MappedNamespace, OffloadingPatch
from kubelet.pods import shadowpod
from kubelet.pods.shadowpod import Options
from sandbox import controlplane
from sandbox.kubectl import Kubectl
from tests import factories
from tests.conftest import install_crds
from tests.manifests import documents
from tests.webhook import reviews
from tests.webhook.installed import CONSUMER, Installed, User, installed

NUMBER: Final = 1000
KUBELET: Final = User(f"{CONSUMER}-c34af51dd912", [CONSUMER, "system:authenticated"])
POLICIES: Final = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
_SAID: Final = re.compile(
    r"^apiserver_(admission_controller_admission_duration_seconds_sum"
    r'|admission_webhook_request_total)\{.*?name="([^"]*)".*\} (\S+)$',
    re.MULTILINE,
)
PLUGIN: Final = "ValidatingAdmissionPolicy"


def main() -> None:
    """Measure, and print a line for each policy and webhook."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else NUMBER
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "plane").mkdir()
        (Path(folder) / "hooked").mkdir()
        with controlplane.start(Path(folder) / "plane") as plane:
            asyncio.run(install_crds(plane.kubeconfig))
            with installed(plane, Path(folder) / "hooked") as found:
                Kubectl(plane.kubeconfig).apply(documents.of_kind(*POLICIES))
                for line in lines(measured(found, number), number):
                    print(line)


def measured(found: Installed, number: int) -> Counter[tuple[str, str]]:
    """Return by metric and name how much more there is of it after so many ShadowPods."""
    twin = found.twin()
    pair = MappedNamespace(CONSUMER, "milan", "shop", twin)
    outside = factories.service(twin, externalIPs=["192.0.2.1"])
    reviews.wait_until(
        lambda: "liqo-consumers" in found.create(keys.SERVICE, outside, user=KUBELET).message
    )
    create(found, pair, "first")
    before = counted(found)
    for index in range(number):
        create(found, pair, f"web-{index}")
    after = counted(found)
    after.subtract(before)
    return after


def create(found: Installed, pair: MappedNamespace, name: str) -> None:
    """Send one ShadowPod, with the label by which the provider knows its creator."""
    spec = factories.pod_spec()
    local = factories.pod(*Key("shop", name), spec=spec, metadata={"uid": name})
    options = Options("milan", OffloadingPatch())
    shadow = shadowpod.shadow(local, pair, options, KUBELET.name)
    answer = found.create(keys.SHADOW_POD, shadow, user=KUBELET)
    if not answer.is_done:
        raise SystemExit(answer.message)


def counted(found: Installed) -> Counter[tuple[str, str]]:
    """Return what the API server says of its policies and webhooks."""
    said = Kubectl(found.plane.kubeconfig).run("get", "--raw", "/metrics")
    made: Counter[tuple[str, str]] = Counter()
    for metric, name, value in _SAID.findall(said):
        made[metric.rpartition("_")[2], name] += float(value)  # type: ignore[assignment]  # seconds
    return made


def lines(more: Counter[tuple[str, str]], number: int) -> list[str]:
    """Return what is printed: the policies, and each webhook."""
    calls = {name: value for (what, name), value in more.items() if what == "total" and value}
    return [
        f"policies: {more['sum', PLUGIN]:.3f} s for {number} ShadowPods",
        *(f"{name}: {value / number:g} calls a ShadowPod" for name, value in sorted(calls.items())),
    ]


if __name__ == "__main__":
    main()
