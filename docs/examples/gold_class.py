"""A slice class of one's own: ``gold`` grants what is asked for, up to a budget per consumer.

Run it on the provider, with a kubeconfig or as a pod whose ServiceAccount may get, list and watch
resourceslices.authentication.liqo.io and patch their status:

    KUBECONFIG=milan.kubeconfig python gold_class.py

A consumer asks for it with `liqoctl create resourceslice --class gold ...`, or by YAML.
"""

import os
from pathlib import Path

from apis import resources
from apis.resources import Quantity
from apis.slices import ResourceSlice
from controllers.granting import customclass
from controllers.granting.customclass import Answer

BUDGET = {"cpu": "16", "memory": "64Gi", "pods": "500", "nvidia.com/gpu": "2"}
"""What each consumer may have of this class, in one slice."""
UNSAID = {"cpu": "4", "memory": "16Gi", "pods": "100"}
"""What a slice gets that does not say it."""
FEE_PAID = frozenset(os.environ.get("GOLD_CONSUMERS", "rome").split(","))


async def allocate(resource_slice: ResourceSlice) -> Answer:
    """Say what one slice gets: called when it is made and whenever it changes.

    This may ask a billing system, a scheduler or a person; it only has to come back.
    """
    if resource_slice.consumer not in FEE_PAID:
        reason = (
            f"cluster {resource_slice.consumer} has not booked class gold: ask for class default"
        )
        return Answer(message=reason, is_accepted=False)
    unsaid = {name: resources.parse_quantity(amount) for name, amount in UNSAID.items()}
    asked = {**unsaid, **resource_slice.wanted}
    granted = {name: min(amount, most(name)) for name, amount in asked.items()}
    cut = [name for name in granted if granted[name] < asked[name]]
    return Answer(
        resources={name: str(amount) for name, amount in granted.items()},
        message=f"cut to the budget of gold: {', '.join(cut)}" if cut else "granted as asked",
        extra={"nodeLabels": {"tier": "gold"}},
    )


def most(name: str) -> Quantity:
    """Return the budget of one resource; nothing of what gold does not have."""
    return resources.parse_quantity(BUDGET.get(name, "0"))


if __name__ == "__main__":
    kubeconfig = os.environ.get("KUBECONFIG")
    customclass.run("gold", allocate, kubeconfig=Path(kubeconfig) if kubeconfig else None)
