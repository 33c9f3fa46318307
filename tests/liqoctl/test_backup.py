"""``liqoctl backup``: what is said, without what servers and controllers add."""

from apis import keys
from apis.objects import Key, Object, named
from controllers import vkoptions
from liqoctl.forge import backup

ADDED: Object = {
    "uid": "1",
    "resourceVersion": "5",
    "generation": 2,
    "creationTimestamp": "2026-01-31T12:00:00Z",
    "managedFields": [{}],
    "finalizers": ["x"],
}


def found(obj: Object) -> Object:
    """Return ``obj`` as a server has it."""
    return {**obj, "metadata": {**obj["metadata"], **ADDED}, "status": {"phase": "Ready"}}


def test_what_servers_and_controllers_add_is_left_out() -> None:
    key = Key("", "shop")
    said = named(keys.NAMESPACE, key)
    said["metadata"]["labels"] = {"team": "a"}
    there = found(said)
    there["metadata"]["labels"] = {
        "team": "a",
        "kubernetes.io/metadata.name": "shop",
        keys.SCHEDULING_ENABLED: "true",
    }
    there["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    there["spec"] = {"finalizers": ["kubernetes"]}
    assert backup.kept(keys.NAMESPACE, there) == said


def test_a_secret_keeps_its_type_and_its_data() -> None:
    where = Key(keys.LIQO_NAMESPACE, keys.AUTHENTICATION_KEYS)
    said = named(keys.SECRET, where, type="Opaque", data={"privateKey": "eA=="})
    assert backup.kept(keys.SECRET, found(said)) == said


def test_the_image_of_the_default_template_is_that_of_the_next_installation() -> None:
    template = vkoptions.template("liqo", "pyliqo:1")
    kept = backup.kept(keys.VK_OPTIONS_TEMPLATE, found(template))
    assert "containerImage" not in kept["spec"]
    own = {**template, "metadata": {**template["metadata"], "labels": {}}}
    assert backup.kept(keys.VK_OPTIONS_TEMPLATE, found(own))["spec"]["containerImage"] == "pyliqo:1"
