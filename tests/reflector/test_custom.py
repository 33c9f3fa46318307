"""Custom resources: all but metadata and status goes, the status comes back."""

from apis import reflection
from apis.objects import Key, Kind, Object, named
from apis.pairs import Pair
from reflector.forge import custom
from reflector.forge.contract import Scene

ROUTE = Kind("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes")
FORGE = custom.forge(reflection.custom(ROUTE))
SCENE = Scene(Pair("rome", "milan", "foo", "foo-rome"))
HERE = Key("foo", "shop")


def route(generation: int = 3, **rest: object) -> Object:
    metadata = {"uid": "1", "generation": generation}
    return named(ROUTE, HERE, metadata=metadata, **rest)


def test_the_twin_has_all_fields_of_the_kind() -> None:
    twin = FORGE.twin(route(spec={"hostnames": ["a"]}, odd={"b": 1}, status={"c": 1}), SCENE)

    assert (twin["spec"], twin["odd"]) == ({"hostnames": ["a"]}, {"b": 1})
    assert "status" not in twin
    assert twin["kind"] == "HTTPRoute"


def test_the_status_comes_back_as_of_the_generation_here() -> None:
    observed = {"conditions": [{"type": "Accepted", "observedGeneration": 8}]}
    older = {"conditions": [{"type": "Accepted", "observedGeneration": 7}]}
    original = route(status={"gone": 1})

    (write,) = FORGE.back(HERE, original, route(8, status={"parents": [observed, older]}), SCENE)

    assert write.verb == "status"
    assert write.body["metadata"] == {"uid": "1"}
    assert write.body["status"] == {
        "gone": None,
        "parents": [
            {"conditions": [{"type": "Accepted", "observedGeneration": 3}]},
            {"conditions": [{"type": "Accepted", "observedGeneration": 7}]},
        ],
    }


def test_a_status_that_is_the_same_or_not_there_yet_is_not_written() -> None:
    same: Object = {"parents": []}

    assert list(FORGE.back(HERE, route(status=same), route(status=same), SCENE)) == []
    assert list(FORGE.back(HERE, route(status=same), route(), SCENE)) == []
    assert list(FORGE.back(HERE, route(status=same), None, SCENE)) == []
    assert list(FORGE.back(HERE, None, None, SCENE)) == []
