"""Which steps a cache that is behind may not be believed for. Source: controllers.md 30."""

import pytest

from apis import keys, objects
from apis.objects import Object
from kubelet.forge.decisions import Sight, Step, rests_on_absence
from tests.factories import pod
from tests.kubelet.worlds import NODE, PAIR, TWIN, WEB, running


def shadow(phase: str) -> Object:
    return objects.named(keys.SHADOW_POD, TWIN, status={"phase": phase})


@pytest.mark.parametrize(
    ("step", "phase", "has_remote", "rests"),
    [
        (Step.DELETE_SHADOW, "Running", True, False),  # read live by itself, and so is the next
        (Step.DELETE_LOCAL, "", False, False),
        (Step.OFFLOAD, "", False, True),
        (Step.FOLLOW, "Running", True, False),
        (Step.FOLLOW, "", False, False),  # its Pod is not created yet
        (Step.FOLLOW, "Running", False, False),  # its Pod is created anew
        (Step.FOLLOW, "Succeeded", True, False),
        (Step.FOLLOW, "Succeeded", False, True),
        (Step.FOLLOW, "Failed", False, True),
        (Step.WATCH_END, "", False, False),
        (Step.REFUSE, "", True, False),
        (Step.WAIT, "", True, False),
        (Step.REST, "", False, False),
    ],
)
def test_what_cannot_be_taken_back_rests_on_what_is_not_there(
    step: Step, phase: str, *, has_remote: bool, rests: bool
) -> None:
    remote = pod(*TWIN, status=running()) if has_remote else None
    sight = Sight(pod(*WEB), shadow(phase), remote, PAIR, NODE)

    assert rests_on_absence(step, sight) is rests
