"""What the API server asks the webhook is one table."""

import pytest

from tests.manifests import webhooks as configurations
from webhook import webhooks


@pytest.mark.parametrize("is_mutating", [True, False])
def test_the_configurations_are_made_of_the_table(*, is_mutating: bool) -> None:
    made = configurations.page(is_mutating=is_mutating)

    assert configurations.path(is_mutating=is_mutating).read_text(encoding="utf-8") == made


def test_rows_of_one_path_ask_about_the_same() -> None:
    for row in webhooks.WEBHOOKS:
        first = webhooks.of_path(row.path)
        assert (row.kind, row.operations) == (first.kind, first.operations), row.name
        assert row.subresources == first.subresources, row.name
