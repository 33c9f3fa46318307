"""Random amounts, as an API server writes them and as we do. Source: docs/parity.md SEC-A13.

Each is the size limit of a volume of a pod that is never created. ``PYLIQO_QUANTITIES`` sets how
many.
"""

import random
from collections.abc import Iterator
from typing import Final

import pytest

from apis import claims, keys, resources
from apis.objects import Key, named
from sandbox.api import RefusedError
from sandbox.controlplane import Plane
from tests import factories
from tests.conftest import size_of

pytestmark = pytest.mark.cluster

COUNT: Final = size_of("PYLIQO_QUANTITIES", 20_000, 1_000_000)
AT_ONCE: Final = 1000
SEED: Final = 20251121
MOST: Final = 2**63 * resources.NANO
"""Beyond it an API server (1.35) loses the exponent: 756263690000000P comes back as 756263690."""
SUFFIXES: Final = (
    "", "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
)  # fmt: skip


def texts(count: int) -> Iterator[str]:
    """Yield amounts of all forms: long and short, with zeros before and behind, tiny and huge."""
    dice = random.Random(SEED)  # noqa: S311  # no secret
    for _ in range(count):
        whole = str(dice.randrange(10 ** dice.randint(1, 18))) + "0" * dice.choice([0, 0, 3, 7])
        part = "." + str(dice.randrange(10 ** dice.randint(1, 12))).zfill(dice.randint(1, 12))
        end = (
            dice.choice("eE") + str(dice.randint(-12, 15))
            if dice.random() < 0.2
            else dice.choice(SUFFIXES)
        )
        yield "0" * dice.choice([0, 0, 0, 2]) + whole + part * (dice.random() < 0.5) + end


def as_the_server_writes(plane: Plane, amounts: list[str]) -> list[str]:
    volumes = [
        {"name": f"v{at}", "emptyDir": {"sizeLimit": amount}} for at, amount in enumerate(amounts)
    ]
    pod = factories.pod("default", "measured", spec=factories.pod_spec(volumes=volumes))
    path = "/api/v1/namespaces/default/pods?dryRun=All"
    made = plane.api.request("POST", path, pod)
    return [str(volume["emptyDir"]["sizeLimit"]) for volume in made["spec"]["volumes"]]


def test_what_an_api_server_writes_anew_it_writes_as_we_do(plane: Plane) -> None:
    """It writes some as they came, zeros in front and all; what it changes it makes canonical."""
    found = [text for text in texts(COUNT) if resources.parse_quantity(text).nanos < MOST]
    changed = 0

    for start in range(0, len(found), AT_ONCE):
        some = found[start : start + AT_ONCE]
        rows = zip(some, as_the_server_writes(plane, some), strict=True)
        again = [(sent, theirs) for sent, theirs in rows if theirs != sent]
        changed += len(again)
        wrong = [(*row, str(resources.parse_quantity(row[0]))) for row in again]
        assert [row for row in wrong if row[1] != row[2]] == []

    assert changed > COUNT / 8


STORED: Final = {
    "1e308": "100e306",
    "1e9999": "1e9999",
    "9" * 10_240: "9" * 10_240,
    "-1": "",
    "NaN": "",
    "0x10": "",
}
"""What an API server makes of an amount, "" where it refuses; 1e999999999 is not sent to any."""


@pytest.mark.parametrize("amount", STORED, ids=lambda text: text[:8])
def test_what_an_api_server_lets_through_and_we_do_not_is_refused_in_words(
    plane: Plane, amount: str
) -> None:
    """So whatever reads a claim or a Pod has to be ready for it."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": amount}}}
    claim = named(keys.PERSISTENT_VOLUME_CLAIM, Key("default", "measured"), spec=spec)
    path = "/api/v1/namespaces/default/persistentvolumeclaims?dryRun=All"
    try:
        made = plane.api.request("POST", path, claim)
    except RefusedError:
        stored = ""
    else:
        stored = made["spec"]["resources"]["requests"]["storage"]

    assert stored == STORED[amount]
    with pytest.raises(ValueError, match=r"quantity|exponent"):
        resources.parse_resources({"storage": stored})
    assert not claims.has_grown({"storage": stored}, {})
    container = {"resources": {"requests": {"storage": stored}}}
    assert resources.usage_of_stored({"containers": [container]}) == {}
