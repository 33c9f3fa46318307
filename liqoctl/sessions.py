"""What every command is told: which cluster, by whose credentials, and how much to say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from apis import keys


@dataclass(frozen=True)
class Session:
    """The global flags: which cluster, which namespace, how much to say."""

    kubeconfig: Path | None = None
    context: str | None = None
    cluster: str = ""
    """Of the kubeconfig, in place of the context's; the same for ``user``."""
    user: str = ""
    namespace: str = ""
    verbose: bool = False
    skip_confirm: bool = False
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels and annotations for all objects that are made."""

    @property
    def liqo_namespace(self) -> str:
        """Return the namespace in which pyliqo is, or is to be, installed."""
        return self.namespace or keys.LIQO_NAMESPACE
