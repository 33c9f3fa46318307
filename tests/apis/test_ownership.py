"""Whose an object is: by its namespace, against whatever it says of itself."""

import ast
from pathlib import Path

import pytest

from apis import keys, ownership
from apis.objects import Key, Object, named
from tests import factories

SENT = {keys.REPLICATION: "true", keys.REMOTE_ID: "rome"}
CAME = {keys.REPLICATED: "true", keys.ORIGIN_ID: "rome"}


def marked(labels: dict[str, str], **rest: object) -> Object:
    return named(
        keys.NAMESPACE_MAP, Key("liqo-tenant-rome", "x"), metadata={"labels": labels}, **rest
    )


@factories.cases("labels, peer, consumer")
def test_what_a_namespace_says(labels: dict[str, str], peer: str, consumer: str) -> None:
    namespace = factories.namespace("x", **labels)

    assert (ownership.peer_of(namespace), ownership.consumer_of(namespace)) == (peer, consumer)
    assert (ownership.peer_of(None), ownership.consumer_of(None)) == ("", "")


@pytest.mark.parametrize(
    ("labels", "peer", "origin", "is_for"),
    [
        (SENT, "rome", "", True),
        (SENT, "turin", "", False),
        (SENT, "", "", False),
        (CAME, "rome", "rome", False),
        (CAME, "turin", "", False),
        ({**SENT, **CAME}, "rome", "rome", False),
        ({**SENT, keys.REPLICATED: "false"}, "rome", "", False),
        ({**SENT, keys.ORIGIN_ID: "milan"}, "rome", "", False),
        ({keys.REPLICATED: "true"}, "rome", "", False),
        ({}, "rome", "", False),
    ],
)
def test_one_sign_of_the_peer_is_enough(
    labels: dict[str, str], peer: str, origin: str, *, is_for: bool
) -> None:
    obj = marked(labels)

    assert ownership.origin(obj, peer) == origin
    assert ownership.is_for(obj, peer) == is_for
    if is_for:
        assert not ownership.is_foreign(obj, peer)


def test_signs_that_a_peer_cannot_take_off() -> None:
    held = marked(SENT)
    held["metadata"]["finalizers"] = [keys.NAMESPACE_MAP_FINALIZER]
    asks = marked(SENT, spec={"consumerClusterID": "rome"})

    assert ownership.is_foreign(held, "rome")
    assert not ownership.is_for(asks, "rome")
    assert not ownership.is_foreign(asks, "turin")


def test_marks_that_are_written_are_understood() -> None:
    assert ownership.origin(marked(ownership.replica("rome")), "rome") == "rome"
    assert ownership.is_for(marked(ownership.original("rome")), "rome")
    made = [marked(labels) for labels in (SENT, CAME, {})]
    assert [ownership.named_by(one) for one in made] == ["rome", "rome", ""]


SIX = ("REMOTE_CLUSTER_ID", "ORIGIN_ID", "REMOTE_ID", "REPLICATED", "REPLICATION", "ORIGIN")
PACKAGES = ("apis", "kube", "certs", "webhook", "controllers", "kubelet", "reflector")
"""Not liqoctl, which shows an administrator what it finds, and acts on what he names."""
ROOT = Path(ownership.__file__).parents[1]


def test_the_marks_are_read_here_alone() -> None:
    """Other modules ask ``apis.ownership`` whose an object is; they write and select only."""
    found = {
        str(path.relative_to(ROOT)): used
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if (used := read_in(path.read_text(encoding="utf-8")))
    }

    assert found.keys() == {"apis/ownership.py"}, found
    assert found["apis/ownership.py"] == {*SIX}


@factories.cases("line")
def test_each_way_to_read_a_mark_is_found(line: str) -> None:
    assert len(read_in(line)) == 1


def test_who_writes_or_selects_reads_nothing() -> None:
    program = """
made = {"labels": {keys.ORIGIN: "rome", **dict.fromkeys([keys.REMOTE_ID])}}
selected = f"{keys.REPLICATED}=true"
_LABEL = ("metadata", "labels", keys.REMOTE_CLUSTER_ID)
listed(labels=keys.REMOTE_CLUSTER_ID)
"""
    assert read_in(program) == set()


def read_in(program: str) -> set[str]:
    """Return which of the marks a program reads of an object: looks up, asks for, or hands on."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(program)):
        match node:
            case ast.Call(func=ast.Attribute(attr="get" | "pop"), args=[first, *_]):
                found |= _marks_in(first)
            case ast.Subscript(slice=which, ctx=ast.Load()):
                found |= _marks_in(which)
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()]):
                found |= _marks_in(left)
            case (
                ast.Assign(value=ast.Attribute() as whole)
                | ast.AnnAssign(value=ast.Attribute() as whole)
            ):
                found |= _marks_in(whole)
    return found


def _marks_in(node: ast.expr) -> set[str]:
    nodes = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]
    return {
        one.attr
        for one in nodes
        if isinstance(one, ast.Attribute)
        and isinstance(one.value, ast.Name)
        and one.value.id == "keys"
        and one.attr in SIX
    }
