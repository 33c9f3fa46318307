"""Whether a ShadowPod plainly does not fit its user's Quota. Pure, and nothing is booked.

Refused is what could not run on an empty quota; what has to wait for its turn is admitted, and the
ShadowPod controller, which keeps the ledger, tells it why it waits. Source: docs/parity.md § 3.8.
"""

from collections.abc import Iterable
from typing import Final

from apis import keys, quotas, validation
from apis.objects import Object
from apis.quotas import Demand, QuotaGrant
from apis.validation import DeniedError

UNREADABLE: Final = 500


def creator(user: str) -> str:
    """Return the value of the label that says who ``user`` is.

    Raises:
        DeniedError: no label can say so.
    """
    escaped = quotas.label(user)
    if not escaped or len(escaped) > quotas.MAX_LABEL:
        takes = f"metadata.labels: {keys.CREATOR_USER} takes 1 to {quotas.MAX_LABEL} characters"
        raise DeniedError(f"{takes}, not the user name {user!r}: use a shorter one")
    return escaped


def of(found: Iterable[Object], label: str) -> Object:
    """Return the Quota whose user is ``label``.

    Raises:
        DeniedError: the user has no Quota.
    """
    quota = quotas.first(found, label)
    if quota is None:
        raise DeniedError(quotas.missing(label).message)
    return quota


def demand(spec: Object) -> Demand:
    """Return what a pod of the PodSpec ``spec`` takes, whether anybody counts it or not.

    Raises:
        DeniedError: an amount cannot be read; the message names the field.
    Source: docs/parity.md SEC-A13.
    """
    try:
        return Demand.of(spec)
    except ValueError as error:
        raise DeniedError(str(error), code=validation.INVALID) from error


def judge(spec: Object, quota: Object) -> None:
    """Refuse the PodSpec ``spec`` where it would not fit ``quota`` if nothing else ran.

    Raises:
        DeniedError: the message names resource, what is asked for, and what there is.
    """
    wanted = demand(spec)
    try:
        grant = QuotaGrant.parse(quota)
    except ValueError as error:
        message = f"{error}: the provider has to correct it"
        raise DeniedError(message, code=UNREADABLE) from error
    refused = quotas.never(grant, wanted)
    if refused is not None:
        raise DeniedError(refused.message)
