"""What README.md says leads from two bare clusters to a pod at the provider, and back."""

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from sandbox import images
from sandbox.kubectl import Kubectl
from tests import pages
from tests.journeys.world import BARE

README: Final = Path(__file__).parents[2] / "README.md"
SECTION: Final = re.compile(r"## Install on your own clusters\n(.*?)\n## ", re.DOTALL)
FENCED: Final = re.compile(r"^( *)```(?:sh|yaml)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
CONSUMER, PROVIDER = BARE
POD: Final = """
kubectl -n foo run web --image IMAGE --image-pull-policy Never \\
  --overrides '{"spec": {"nodeSelector": {"topology.kubernetes.io/region": "eu"}}}' -- sleep 86400
kubectl -n foo wait --for=condition=Ready pod/web --timeout=120s
kubectl -n foo get pod web -o jsonpath='{.spec.nodeName}'
"""

pytestmark = pytest.mark.journey


def blocks() -> list[str]:
    """Return the blocks of the section, with the names of the two clusters in them."""
    found = SECTION.search(README.read_text(encoding="utf-8"))
    assert found
    texts = [textwrap.dedent(block[2]) for block in FENCED.finditer(found[1])]
    return [text.replace("rome", CONSUMER).replace("milan", PROVIDER) for text in texts]


def kinds(kubeconfig: Path) -> set[str]:
    return {crd["metadata"]["name"] for crd in Kubectl(kubeconfig).items("crd")}


def test_its_commands_lead_to_a_pod_at_the_provider_and_leave_nothing(
    bare: Mapping[str, Path], tmp_path: Path
) -> None:
    for name, kubeconfig in bare.items():
        (tmp_path / f"{name}.kubeconfig").symlink_to(kubeconfig)
    before = [kinds(kubeconfig) for kubeconfig in bare.values()]
    where = {"KUBECONFIG": f"{CONSUMER}.kubeconfig", "PYLIQO_IMAGE": images.product_name()}

    def typed(block: str, answer: str = "") -> str:
        return pages.shell(block, tmp_path, answer=answer, **where)

    install, see, offload, manifest, undo = blocks()
    typed(install)
    assert "Healthy: yes" in typed(see)
    typed(offload)
    typed(f"kubectl apply -f - <<'END'\n{manifest}END")
    assert typed(POD.replace("IMAGE", images.workload_name())).endswith(PROVIDER)
    for line in undo.splitlines():
        typed(line, answer="y\n")

    assert [kinds(kubeconfig) for kubeconfig in bare.values()] == before
