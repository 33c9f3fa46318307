"""What the API server asks the webhook is one table."""

import pytest

from tests.manifests import webhooks
from webhook import table


@pytest.mark.parametrize("is_mutating", [True, False])
def test_the_configurations_are_made_of_the_table(*, is_mutating: bool) -> None:
    made = webhooks.page(is_mutating=is_mutating)

    assert webhooks.path(is_mutating=is_mutating).read_text(encoding="utf-8") == made


def test_rows_of_one_path_ask_about_the_same() -> None:
    for row in table.WEBHOOKS:
        first = table.of_path(row.path)
        assert (row.kind, row.operations) == (first.kind, first.operations), row.name
        assert row.subresources == first.subresources, row.name
