"""Each row of the table of what a consumer may write, sent to a real API server.

Source: docs/parity.md SEC-A7, SEC-A16, SEC-A17, SEC-A20.
"""

from typing import Final

import pytest

from apis import keys
from apis.objects import Kind
from tests.manifests import documents, policytable, samples
from tests.manifests.asking import Provider, made, wait_until
from tests.manifests.policytable import Rule

ROWS: Final = [row for row in policytable.TABLE if samples.sample_of(row, row.kinds[0]) is not None]
ELSEWHERE: Final = {
    policytable.WEBHOOK: "tests/webhook",
    policytable.ORIGINALS: "tests/manifests/test_consumer_marks.py",
}
"""Where the other rows have their tests."""
NARROWS: Final = {"loadBalancerClasses", "ingressClasses", "storageClasses", "ingressHosts"}

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def offering(milan: Provider) -> Provider:
    """Return the provider with an object of each kind, once it offers what the samples expect."""
    milan.annotate(dict(samples.NARROWED))
    gold = made(keys.PERSISTENT_VOLUME_CLAIM, spec={"storageClassName": "gold"})
    wait_until(lambda: milan.create(gold, keys.PERSISTENT_VOLUME_CLAIM) != "")
    for kind in policytable.EVERY:
        assert milan.create(made(kind, "stands"), kind, for_good=True) == ""
    return milan


def each(rows: list[Rule]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", rows, ids=str)


def test_all_rows_are_sent_but_those_that_have_tests_elsewhere() -> None:
    assert {row.by for row in policytable.TABLE if row not in ROWS} == set(ELSEWHERE)


@each(ROWS)
def test_what_a_row_says_is_taken_and_all_else_refused(offering: Provider, row: Rule) -> None:
    for kind in row.kinds:
        if policytable.CREATE in row.when:
            _create(offering, row, kind)
        if policytable.CHANGE in row.when:
            _change(offering, row, kind)


def _create(provider: Provider, row: Rule, kind: Kind) -> None:
    sample = samples.sample_of(row, kind)
    assert sample is not None
    for changes in sample.good:
        assert provider.create(made(kind, **changes), kind) == "", changes
    for changes in sample.bad:
        said = provider.create(made(kind, **changes), kind)
        assert policytable.judge(row, kind) in said, (kind.kind, changes, said)


def _change(provider: Provider, row: Rule, kind: Kind) -> None:
    """What Kubernetes itself refuses, since the field never changes, is refused all the same."""
    sample = samples.sample_of(row, kind)
    assert sample is not None
    for changes in sample.good:
        said = provider.patch(kind, "stands", changes)
        assert said == "" or said.startswith("422"), (kind.kind, changes, said)
    for changes in sample.bad:
        said = provider.patch(kind, "stands", changes)
        is_fixed = said.startswith("422") and "immutable" in said
        assert policytable.judge(row, kind) in said or is_fixed, (kind.kind, changes, said)


def test_what_a_provider_policy_opens_passes(offering: Provider) -> None:
    rows = [
        (kind, sample)
        for row in ROWS
        for kind in row.kinds
        if row.opened and row.opened not in NARROWS and (sample := samples.sample_of(row, kind))
    ]
    domains = ",".join(filter(None, {samples.domains(sample) for _, sample in rows}))

    def refused() -> int:
        return sum(
            bool(offering.create(made(kind, **changes), kind))
            for kind, sample in rows
            for changes in sample.bad
        )

    assert refused() == sum(len(sample.bad) for _, sample in rows)
    offering.annotate({**samples.OPENED, keys.OFFERED_ANNOTATION_DOMAINS: domains})
    wait_until(lambda: refused() == 0)
    offering.annotate({**samples.NARROWED, keys.OFFERED_ANNOTATION_DOMAINS: None})


def test_all_that_opens_or_narrows_is_a_field_of_provider_policies() -> None:
    schema = documents.named("CustomResourceDefinition", "providerpolicies.pyliqo.io")["spec"]
    spec = schema["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]

    assert {row.opened for row in policytable.TABLE if row.opened} <= spec["properties"].keys()
