"""The label by which a ForeignCluster is found. Pure. Source: docs/parity.md § 3.3."""

from typing import Final

from apis import keys, objects, validation
from apis.objects import Object
from webhook import patch
from webhook.admission import Admitted
from webhook.patch import Path
from webhook.rules import shape

_LABEL: Final[Path] = ("metadata", "labels", keys.REMOTE_CLUSTER_ID)


def label(obj: Object) -> Admitted:
    """Set the label to the cluster's ID, whatever it was."""
    shape.check(obj, "ForeignCluster")
    cluster_id = validation.text(objects.spec(obj).get("clusterID"), "spec.clusterID")
    changes = patch.put(obj, _LABEL, cluster_id) if cluster_id else []
    return Admitted(changes, verdict="labelled" if changes else "unchanged")
