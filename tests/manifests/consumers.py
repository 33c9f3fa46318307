"""Who writes at a provider in the name of a consumer."""

from typing import Final

from tests.manifests import twins

ROME: Final = ("--as=rome", "--as-group=liqo.io", "--as-group=system:authenticated")
"""Its control plane, as its certificate says."""
KUBELET: Final = twins.ROME
