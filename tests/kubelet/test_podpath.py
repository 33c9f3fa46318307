"""How far a reader goes who follows one pod through the kubelet. Source: CONTRIBUTING.md."""

from tests import podpath

FUNCTIONS = 20
FILES = 6


async def test_the_way_of_a_pod_through_the_kubelet_grows_no_longer() -> None:
    stays = await podpath.followed()
    files = {stay.file for stay in stays}

    assert stays[0] == ("kubelet/pods/reconcile.py", "PodReconciler.reconcile")
    assert "PodStatuses.write" in {stay.function for stay in stays}
    assert len(stays) <= FUNCTIONS, "python -m tests.podpath lists them"
    assert len(files) <= FILES
