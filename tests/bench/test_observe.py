"""What the observer sees becomes a story of lives."""

from collections.abc import Sequence

import msgspec

from apis import keys
from apis.objects import Key
from bench import observe
from bench.observe import GONE, NUMBERED, READY, Seen, Sighting, Story
from kube.informer import Change


def seen(t: float, state: str = "", **more: str) -> Sighting:
    fields = {"uid": "1", "node": "", "sequence": "", **more}
    return Sighting(
        t, "rome", "Pod", "demo", "web", fields["uid"], fields["node"], state, fields["sequence"]
    )


def told(sightings: Sequence[Sighting]) -> Story:
    story = Story()
    for sighting in sightings:
        story.fold(sighting)
    return story


def test_a_life_has_its_first_times() -> None:
    story = told([
        seen(1.0, "Pending"),
        seen(2.0, "Pending", node="milan"),
        seen(3.0, READY, node="milan"),
        seen(4.0, READY, node="milan"),
        seen(5.0, GONE),
    ])  # fmt: skip

    life = story.of("rome", keys.POD, "demo")["web"]

    assert (life.created, life.bound, life.ready, life.gone) == (1.0, 2.0, 3.0, 5.0)


def test_sequences_have_the_time_of_their_first_sight() -> None:
    story = told([seen(1, sequence="1"), seen(2, sequence="2"), seen(3, sequence="2")])

    life = story.of("rome", keys.POD, "demo")["web"]

    assert life.sequences == {"1": 1, "2": 2}
    assert (life.latest, life.changed) == ("2", 2)


def test_a_second_object_of_a_name_is_a_double_unless_the_first_was_gone() -> None:
    assert told([seen(1), seen(2, uid="2")]).doubles
    assert not told([seen(1), seen(2, GONE), seen(3, uid="2")]).doubles


def test_what_is_over_is_forgotten() -> None:
    story = told([seen(1), seen(2, GONE)])

    story.forget()

    assert story.lives == {}


def test_a_pod_is_ready_by_its_condition_and_numbered_by_another() -> None:
    pod = {
        "metadata": {"name": "web", "namespace": "demo", "uid": "1"},
        "spec": {"nodeName": "milan"},
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": NUMBERED, "status": "True", "message": "7"},
            ],
        },
    }
    new = msgspec.convert(pod, Seen)

    said = observe.sighting(1.0, "rome", "Pod", Change(Key("demo", "web"), None, new))

    assert (said.state, said.node, said.sequence) == (READY, "milan", "7")


def test_an_object_is_numbered_by_its_data_and_goes() -> None:
    item = {"metadata": {"name": "one", "namespace": "demo"}, "data": {"sequence": "3"}}
    old = msgspec.convert(item, Seen)
    key = Key("demo", "one")

    assert observe.sighting(1.0, "rome", "ConfigMap", Change(key, None, old)).sequence == "3"
    assert observe.sighting(1.0, "rome", "ConfigMap", Change(key, old, None)).state == GONE
