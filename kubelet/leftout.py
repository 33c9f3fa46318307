"""Tells whose pod it is what of it does not go to the provider."""

from typing import Final

from apis import apply, keys, podfields
from apis.objects import Object
from apis.offloading import MappedNamespace
from kubelet.contract import Recorder
from kubelet.forge import accounts, antiaffinity, shadowpod
from kubelet.forge.accounts import Mode
from kubelet.forge.shadowpod import Options

UNKNOWN_FIELD: Final = "UnknownField"
AFFINITY: Final = "AffinityNotSent"
ORDERS: Final = "AnnotationsNotSent"
TOLERATIONS: Final = "TolerationsNotSent"
_MOST: Final = 3
"""Taints that a message names."""
_OBEYED: Final = (
    "programs of that cluster may obey it (spec.allowedPodFields.annotationDomains of its "
    "ProviderPolicy opens domains)"
)
_NEWER: Final = "it is newer than this virtual kubelet, which wants an upgrade"


def tell(recorder: Recorder, local: Object, pair: MappedNamespace, options: Options) -> None:
    """Record an Event about ``local`` for each sort of what was left out of it."""
    twins = options.twins or {}
    there = f"did not go to {pair.destination}"
    if unknown := podfields.unknown(local["spec"]):
        message = f"spec.{', spec.'.join(unknown)} {there}: {_NEWER}"
        recorder.event(keys.POD, local, "Warning", UNKNOWN_FIELD, message)
    _tell_orders(recorder, local, pair, shadowpod.unsent(local, options))
    if taints := shadowpod.untaken(local, options):
        recorder.event(keys.POD, local, "Normal", TOLERATIONS, _kept_off(taints, there))
    is_tokenless = accounts.mode(local, options.api_server) is Mode.DISABLED
    if is_tokenless and (tokens := podfields.tokens(local["spec"])):
        message = f"{', '.join(tokens)} {there}: {podfields.TOKEN_CURE}"
        recorder.event(keys.POD, local, "Warning", keys.TOKEN_NOT_SENT, message)
    if terms := [*antiaffinity.unsent(local, twins)]:
        message = "; ".join(f"{one.path} {there}: it {one.why}" for one in terms)
        recorder.event(keys.POD, local, "Warning", AFFINITY, message)


def _kept_off(taints: list[str], there: str) -> str:
    named = ", ".join(one or "every taint" for one in taints[:_MOST])
    more = f" and {len(taints) - _MOST} more" if len(taints) > _MOST else ""
    cure = "allowedPodFields.tolerations of its ProviderPolicy opens them"
    return f"tolerations of {named}{more} {there}, which keeps such nodes for others: {cure}"


def tell_taken_off(
    recorder: Recorder, local: Object, pair: MappedNamespace, options: Options, changes: Object
) -> None:
    """Record which labels and annotations ``changes`` take off what went to the provider before."""
    taken = apply.taken_off(changes.get("metadata") or {})
    _tell_orders(recorder, local, pair, taken & shadowpod.unsent(local, options))


def _tell_orders(
    recorder: Recorder, local: Object, pair: MappedNamespace, names: frozenset[str]
) -> None:
    if names:
        listed = ", ".join(sorted(names))
        message = f"{listed} did not go to {pair.destination}: {_OBEYED}"
        recorder.event(keys.POD, local, "Normal", ORDERS, message)
