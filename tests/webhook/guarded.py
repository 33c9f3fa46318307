"""A provider with all that judges consumers: the policies, and the webhook as it is installed."""

import contextlib
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from apis import keys
from apis.objects import Key, Kind, Object, named
from certs import pki
from kube import clock
from sandbox import documents as sandbox_documents
from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl
from tests import factories
from tests.manifests import documents, policies
from tests.webhook import reviews
from tests.webhook.installed import CONSUMER, Installed, User, installed

KUBELET: Final = User(f"{CONSUMER}-c34af51dd912", [CONSUMER, "system:authenticated"])
"""A virtual kubelet of the consumer, as the certificate of its slice says."""
CONTROL_PLANE: Final = User(CONSUMER, ["liqo.io", "system:authenticated"])


@contextlib.contextmanager
def guarded_webhook(plane: Plane, directory: Path) -> Iterator[Installed]:
    """Yield it once the webhook is called and the policies refuse."""
    with installed(plane, directory) as found:
        Kubectl(plane.kubeconfig).apply(documents.of_kind(*policies.KINDS))
        twin = found.twin()
        service = factories.service(twin, externalIPs=["192.0.2.1"])
        shadow = named(
            keys.SHADOW_POD, Key(twin, "marked"),
            metadata={"labels": {keys.ORIGIN: CONSUMER}, "finalizers": ["a.io/b"]},
            spec={"pod": factories.pod_spec()},
        )  # fmt: skip
        refused_by_policy(found, keys.SERVICE, service, "liqo-consumers")
        refused_by_policy(found, keys.SHADOW_POD, shadow, "liqo-consumer-marks")
        yield found


def refused_by_policy(found: Installed, kind: Kind, obj: Object, told: str) -> None:
    """Return once the policy named ``told`` refuses ``obj``."""
    how: Any = {"user": KUBELET, "dryRun": "All"}
    reviews.wait_until(lambda: told in found.create(kind, obj, **how).message)


def guarded_space(found: Installed, consumer: str, **spec: object) -> str:
    """Return a twin of a consumer whose own ProviderPolicy says ``spec``."""
    policy: Object = named(keys.PROVIDER_POLICY, Key("", consumer), spec=spec)
    assert found.create(keys.PROVIDER_POLICY, policy).is_done
    return found.twin(consumer)


def kubeconfig(found: Installed, user: User, directory: Path) -> Path:
    """Return a kubeconfig with a certificate of ``user``, as peering would give one."""
    own = found.plane.files.pki
    ca = pki.Keypair((own / "ca.crt").read_bytes(), (own / "ca.key").read_bytes())
    pair = pki.issue(
        ca, common_name=user.name, organizations=user.groups, client=True,
        now=clock.now(), lifetime=dt.timedelta(hours=2),
    )  # fmt: skip
    text = sandbox_documents.kubeconfig(
        cluster="milan", server=found.plane.server, ca=ca.certificate,
        user=user.name, pair=(pair.certificate, pair.key),
    )  # fmt: skip
    path = directory / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return path
