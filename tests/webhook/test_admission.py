"""AdmissionReviews off the wire, hostile ones among them.

Source: docs/parity.md A-2 to A-9; security D8.
"""

import copy
import gc
import json
import sys
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis import keys
from apis.objects import Object
from apis.validation import DeniedError
from tests import factories
from tests.webhook.reviews import answer_of, body, offloading, patch_of, review
from webhook import admission, strictjson
from webhook.admission import Admitted, MalformedError, Request, WebhookHandler

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
POD = {"metadata": {"name": "web"}, "spec": {}}


def judge(answer: Admitted | DeniedError) -> WebhookHandler:
    def handler(request: Request) -> Admitted:
        if isinstance(answer, DeniedError):
            raise answer
        return answer

    return WebhookHandler(keys.POD, frozenset({"CREATE", "DELETE"}), handler)


ALLOWING = judge(Admitted())


def test_an_answer_repeats_version_and_uid_and_no_patch() -> None:
    answer = answer_of(body(POD), ALLOWING)

    assert answer == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": UID, "allowed": True, "auditAnnotations": {"verdict": "allowed"}},
    }


def test_a_change_comes_with_its_type() -> None:
    operations = [{"op": "add", "path": "/spec/x", "value": "ü"}]

    answer = answer_of(body(POD), judge(Admitted(operations)))

    assert answer["response"]["patchType"] == "JSONPatch"
    assert patch_of(answer) == operations


def test_a_refusal_has_code_reason_and_one_short_sentence() -> None:
    denied = DeniedError("spec.x:\r\nno " + "x" * 300 + ": do this", code=422)

    response = answer_of(body(POD), judge(denied))["response"]

    assert response["allowed"] is False
    assert (response["status"]["code"], response["status"]["reason"]) == (422, "Invalid")
    message = response["status"]["message"]
    assert len(message) == 256
    assert message.startswith("pod shop/web: spec.x:  no")
    assert message.endswith("do this")
    assert message.isprintable()
    assert response["auditAnnotations"] == {"verdict": "denied", "reason": message}


def test_warnings_are_short_printable_and_few() -> None:
    warnings = ["a\nb", "x" * 1000, *["more"] * 30]

    response = answer_of(body(POD), judge(Admitted(warnings=warnings)))["response"]

    assert response["warnings"][0] == "a b"
    assert all(len(text) <= 256 and text.isprintable() for text in response["warnings"])
    assert sum(map(len, response["warnings"])) <= 4096


@pytest.mark.parametrize("name", ["oldObject", "options", "dryRun", "userInfo", "name"])
@pytest.mark.parametrize("is_null", [True, False])
def test_what_may_be_missing_is_not_missed(name: str, *, is_null: bool) -> None:
    sent = review(POD)
    sent["request"].pop(name)
    if is_null:
        sent["request"][name] = None

    assert answer_of(json.dumps(sent).encode(), ALLOWING)["response"]["allowed"]


def test_a_delete_has_only_an_old_object() -> None:
    sent = body(None, operation="DELETE", oldObject=POD)

    assert answer_of(sent, ALLOWING)["response"]["allowed"]


@factories.cases("request_, message")
def test_what_it_is_not_for_is_refused_explicitly(request_: dict[str, Any], message: str) -> None:
    sent = review(POD)
    resource = sent["request"]["resource"]
    resource["resource"] = request_.pop("kind_", "pods")
    resource["version"] = request_.pop("version", "v1")
    sent["request"] |= request_

    response = answer_of(json.dumps(sent).encode(), ALLOWING)["response"]

    assert response["allowed"] is False
    assert response["status"]["code"] == 400
    assert message in response["status"]["message"]
    assert "correct its configuration" in response["status"]["message"]


def test_a_custom_kind_is_known_by_group_and_plural() -> None:
    kind = keys.NAMESPACE_OFFLOADING
    only = WebhookHandler(kind, frozenset({"CREATE"}), lambda _request: Admitted())

    assert answer_of(body(offloading(), kind=kind), only)["response"]["allowed"]


HOSTILE = [
    pytest.param(b"", id="nothing"),
    pytest.param(b"{", id="half"),
    pytest.param(b"null", id="null"),
    pytest.param(b"[]", id="list"),
    pytest.param(b'"x"', id="string"),
    pytest.param(b"{}", id="empty"),
    pytest.param(body(POD)[:-1], id="cut"),
    pytest.param(body(POD) + b"{}", id="two values"),
    pytest.param(b"[" * 100_000, id="deep, open"),
    pytest.param(b"[" * 100_000 + b"]" * 100_000, id="deep lists"),
    pytest.param(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, id="deep objects"),
    pytest.param(b"[" * 250 + b"]" * 250, id="a little too deep"),
    pytest.param(b'{"a": NaN}', id="NaN"),
    pytest.param(b'{"a": Infinity}', id="Infinity"),
    pytest.param(b'{"a": -Infinity}', id="-Infinity"),
    pytest.param(b'{"a": 1e999}', id="beyond double"),
    pytest.param(b'{"a": ' + b"9" * 5000 + b"}", id="5000 digits"),
    pytest.param(b'{"a": 1, "a": 2}', id="key twice"),
    pytest.param(
        body(POD).replace(b'"spec": {}', b'"spec": {}, "spec": {"x": 1}'), id="spec twice"
    ),
    pytest.param(b'{"a": "\\ud800"}', id="lone surrogate"),
    pytest.param(b'{"\\udc00": 1}', id="lone surrogate in a key"),
    pytest.param(b'{"a": "\xff"}', id="not UTF-8"),
    pytest.param(b"\xef\xbb\xbf" + body(POD), id="byte-order mark"),
    pytest.param(body(POD).decode().encode("utf-16"), id="UTF-16"),
    pytest.param(body(POD).decode().encode("utf-32"), id="UTF-32"),
    pytest.param(b'{"a": 01}', id="leading zero"),
    pytest.param(b"{'a': 1}", id="single quotes"),
    pytest.param(b'{"a": "\x01"}', id="control character"),
    pytest.param(b"\x1f\x8b\x08\x00\x00", id="gzip"),
    pytest.param(body(POD, uid=""), id="no uid"),
    pytest.param(body(POD, uid=5), id="uid a number"),
    pytest.param(body(POD, uid=None), id="uid null"),
    pytest.param(body(POD, resource="pods"), id="resource a string"),
    pytest.param(body(POD, operation=["CREATE"]), id="operation a list"),
    pytest.param(body(POD, userInfo="root"), id="user a string"),
    pytest.param(body(POD, dryRun="yes"), id="dry run a string"),
    pytest.param(body([POD]), id="object a list"),
    pytest.param(body(None), id="no object"),
    pytest.param(body(None, operation="DELETE"), id="no old object"),
    pytest.param(body(POD).replace(b"k8s.io/v1", b"k8s.io/v1beta1"), id="v1beta1"),
    pytest.param(body(POD).replace(b"AdmissionReview", b"Review"), id="another kind"),
    pytest.param(b'{"request": ' + b'{"uid": "x"}' + b"}", id="no version"),
    pytest.param(
        b'{"a": {' + b",".join(b'"%d":0' % n for n in range(500_000)) + b"}}", id="many keys"
    ),
]


@pytest.mark.parametrize("sent", HOSTILE)
def test_a_hostile_body_is_malformed_and_the_answer_is_json(sent: bytes) -> None:
    with pytest.raises(MalformedError) as malformed:
        answer_of(sent, ALLOWING)

    answer = json.dumps(admission.malformed(malformed.value)).encode()
    assert json.loads(answer)["response"]["allowed"] is False
    assert len(json.loads(answer)["response"]["status"]["message"]) <= 256


def test_what_is_malformed_keeps_its_uid() -> None:
    with pytest.raises(MalformedError) as malformed:
        answer_of(body(POD, operation=5), ALLOWING)

    assert admission.malformed(malformed.value)["response"]["uid"] == UID


@pytest.mark.parametrize(
    "odd", ["😀 \u2028 \x7f", "\\u0000", "{" * 300 + "[" * 300, "\\", '"', "x" * 300_000]
)
def test_odd_text_in_an_object_is_none_of_our_business(odd: str) -> None:
    sent = {**POD, "odd": {odd: [odd, 10**300, 1e300, -0.0]}}

    assert answer_of(body(sent), ALLOWING)["response"]["allowed"]


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert strictjson.decode(b'{"a": "\\ud83d\\ude00"}') == {"a": "😀"}


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_what_go_escapes_is_read_as_it_was_meant(end: bytes) -> None:
    command = rb'{"command":"a \u003c b \u0026\u0026 c \u003e \\u003c","deep":[{"a":1.5}]}'

    found = strictjson.decode(command + end)

    assert found == {"command": "a < b && c > \\u003c", "deep": [{"a": 1.5}]}


@pytest.mark.parametrize("sent", [b'{"a":1,"a":1}', b'{"a":{"b":"x","b":"x"}}'])
def test_a_key_that_occurs_twice_is_seen_wherever_it_is(sent: bytes) -> None:
    with pytest.raises(ValueError, match="twice"):
        strictjson.decode(sent)


def test_depth_counts_and_brackets_in_texts_do_not() -> None:
    flat = b'{"a":[' + b",".join([b'"[{[{"'] * 300) + b"]}"
    assert len(strictjson.decode(flat)["a"]) == 300
    most = strictjson.MAX_DEPTH
    assert strictjson.decode(b"[" * most + b"]" * most)
    mixed = b'[{"a":' * (most // 2 + 1) + b"1" + b"}]" * (most // 2 + 1)
    for deep in (b"[" * (most + 1) + b"]" * (most + 1), mixed):
        with pytest.raises(ValueError, match="deeper"):
            strictjson.decode(deep)


def test_lists_and_objects_are_counted_and_those_in_texts_are_not() -> None:
    most = strictjson.MAX_NESTED
    text = b'"' + b"[" * most + b'"'
    assert len(strictjson.decode(b"[" + text + b",{}" * (most - 1) + b"]")) == most
    with pytest.raises(ValueError, match="more than"):
        strictjson.decode(b"[" + text + b",{}" * most + b"]")


@pytest.mark.parametrize("text", [b'"', b'\\"', b"\\\\", b'\\\\"', b"n\\", b"\\n", b'"]', b"}"])
@pytest.mark.parametrize("times", [strictjson.MAX_DEPTH, strictjson.MAX_DEPTH + 1])
def test_depth_is_told_beside_any_text(*, text: bytes, times: int) -> None:
    value = json.dumps([text.decode(), {text.decode() + "[{": "]"}]).encode()
    sent = b"[" * (times - 2) + value + b"]" * (times - 2)

    if times <= strictjson.MAX_DEPTH:
        assert strictjson.decode(sent)
    else:
        with pytest.raises(ValueError, match="deeper"):
            strictjson.decode(sent)


def test_depth_costs_no_more_than_length() -> None:
    """Anybody who reaches the webhook can send a list in a list as well as one beside another."""

    def calls(body: bytes) -> int:
        seen: list[str] = []
        gc.disable()  # a collection calls the one who wants to know of it
        sys.setprofile(lambda _frame, event, _arg: seen.append(event))
        try:
            strictjson.decode(body)
        finally:
            sys.setprofile(None)
            gc.enable()
        return len(seen)

    pairs = 75_000
    beside = b"[" + b",".join([b"[]"] * pairs) + b"]"
    deep = b"[" + b",".join([b"[" * 150 + b"]" * 150] * (pairs // 150)) + b"]"

    assert calls(deep) <= calls(beside)


# JSON Patch operations against plain assignment ---------------------------------------------------

NAMES = st.sampled_from(["spec", "a/b", "c~d", "x"])
OBJECTS = st.recursive(
    st.none() | st.integers() | st.text("ab/~", max_size=3),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
ROOTS = st.dictionaries(NAMES, OBJECTS, max_size=3)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(tuple)


def assigned(obj: Object, path: tuple[str, ...], value: Any) -> Object:
    made = copy.deepcopy(obj)
    inner = made
    for name in path[:-1]:
        if inner.get(name) is None:
            inner[name] = {}
        inner = inner[name]
    inner[path[-1]] = value
    return made


def is_plain(obj: Object, path: tuple[str, ...]) -> bool:
    above = [admission.find(obj, path[:depth]) for depth in range(1, len(path))]
    return all(found is None or isinstance(found, dict) for found in above)


@given(ROOTS, PATHS, st.integers() | st.lists(st.integers(), max_size=2))
def test_put_is_assignment(obj: Object, path: tuple[str, ...], value: Any) -> None:
    if not is_plain(obj, path):
        return
    changes = admission.put(obj, path, value)

    assert jsonpatch.apply_patch(obj, changes) == assigned(obj, path, value)
    assert admission.put(assigned(obj, path, value), path, value) == []


@given(ROOTS, PATHS, st.integers(), st.integers())
def test_what_is_applied_is_what_others_apply(
    obj: Object, path: tuple[str, ...], value: int, item: int
) -> None:
    if not is_plain(obj, path):
        return
    before = copy.deepcopy(obj)
    changes = admission.put(obj, path, [value])

    made = admission.applied(obj, changes)
    more = admission.append(made, path, item)

    assert made == jsonpatch.apply_patch(obj, changes)
    assert admission.applied(made, more) == jsonpatch.apply_patch(made, more)
    assert obj == before


def test_append_makes_the_list_and_what_is_above_it() -> None:
    made = jsonpatch.apply_patch({"spec": {}}, admission.append({"spec": {}}, ("spec", "list"), 1))

    assert made == {"spec": {"list": [1]}}
    assert jsonpatch.apply_patch(made, admission.append(made, ("spec", "list"), 2)) == {
        "spec": {"list": [1, 2]}
    }


def test_a_null_counts_as_missing() -> None:
    sent = {"spec": {"affinity": None, "tolerations": None}}

    changes = [
        *admission.append(sent, ("spec", "tolerations"), {}),
        *admission.put(sent, ("spec", "affinity", "nodeAffinity"), {"x": 1}),
    ]

    assert jsonpatch.apply_patch(sent, changes) == {
        "spec": {"affinity": {"nodeAffinity": {"x": 1}}, "tolerations": [{}]}
    }
