"""What ``liqoctl get`` shows of an object."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from apis import keys, objects
from apis.objects import Key, Kind, Object, named
from liqoctl.forge import tables

NOW: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)


def made_table(kind: Kind, ago: timedelta = timedelta(hours=5)) -> Object:
    obj = named(kind, Key("liqo-tenant-milan", "pool"), spec={}, status={})
    obj["metadata"]["creationTimestamp"] = objects.timestamp(NOW - ago)
    return obj


@pytest.mark.parametrize("kind", tables.TABLES, ids=str)
def test_each_table_has_a_cell_for_each_column(kind: Kind) -> None:
    for is_wide in (False, True):
        for in_all in (False, True):
            head, row = tables.rows(kind, [made_table(kind)], NOW, is_wide=is_wide, in_all=in_all)
            assert len(head) == len(row)
            assert ("AGE" in head) is is_wide
            assert head.count("NAMESPACE") == (in_all or tables.TABLES[kind].has_namespace)


def test_the_namespace_is_first_if_all_are_shown() -> None:
    _, row = tables.rows(keys.VIRTUAL_NODE, [made_table(keys.VIRTUAL_NODE)], NOW, in_all=True)
    assert row[:2] == ("liqo-tenant-milan", "pool")


@pytest.mark.parametrize(
    ("ago", "shown"),
    [
        (timedelta(seconds=-5), "0s"),
        (timedelta(seconds=119), "119s"),
        (timedelta(minutes=2), "2m"),
        (timedelta(hours=3), "3h"),
        (timedelta(hours=47), "47h"),
        (timedelta(days=400), "400d"),
    ],
)
def test_ages_are_as_kubectl_shows_them(ago: timedelta, shown: str) -> None:
    assert tables.age(made_table(keys.TENANT, ago), NOW) == shown


def test_an_object_that_was_never_made_has_no_age() -> None:
    assert tables.age(named(keys.TENANT, Key("", "rome")), NOW) == "<unknown>"
