"""The table of what a consumer may write, its page, and the rights that peering gives."""

from apis import keys
from tests.manifests import documents, policytable

ROLES = {
    keys.REMOTE_CONTROLPLANE_ROLE: "control plane",
    keys.VIRTUAL_KUBELET_REMOTE_ROLE: "virtual kubelet",
}
WRITING = {"create", "update", "patch", "delete"}


def test_the_page_is_made_of_the_table() -> None:
    run = "python -m tests.manifests.policytable"
    assert policytable.PAGE.read_text() == policytable.page(), f"run {run}"


def test_the_table_has_each_kind_that_peering_lets_a_consumer_write() -> None:
    """Anybody who adds a right adds rows."""
    for role, who in ROLES.items():
        written = {
            (group, plural)
            for rule in documents.named("ClusterRole", role)["rules"]
            if WRITING & {*rule["verbs"]}
            for group in rule["apiGroups"]
            for plural in rule["resources"]
            if "/" not in plural  # connections to pods, which store nothing
        }
        rows = {
            (kind.group, kind.plural) for kind in policytable.EVERY if policytable.who(kind) == who
        }
        assert written == rows, role


def test_each_kind_has_rows_for_all_of_its_metadata() -> None:
    for kind in policytable.EVERY:
        fields = {
            row.field.split(" ")[0].rstrip("s") for row in policytable.TABLE if kind in row.kinds
        }
        assert {"finalizer", "ownerReference", "annotation"} <= fields, kind


def test_no_row_is_there_twice() -> None:
    assert len({*map(str, policytable.TABLE)}) == len(policytable.TABLE)
