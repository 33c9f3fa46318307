"""What was written last is known while the cache is behind, and no longer."""

from apis import objects
from apis.objects import Object
from kube.slim import ReadYourWrites
from tests import factories


def config(version: str, **data: str) -> Object:
    made = factories.config_map("shop", "web", **data)
    return {**made, "metadata": {**made["metadata"], "uid": "u-1", "resourceVersion": version}}


def test_while_the_cache_is_behind_what_was_written_is_the_newest() -> None:
    old, new, newer = config("1"), config("2", a="1"), config("3", a="2")
    key, written = objects.key_of(old), ReadYourWrites()
    assert written.newest(key, old) is old
    written.add(old, new)
    assert written.newest(key, old) == new
    written.add(new, newer)
    assert [written.newest(key, cached) for cached in (old, new)] == [newer, newer]
    assert written.newest(key, newer) is newer
    assert written.newest(key, old) is old, "once the cache has shown it, its word counts"


def test_what_is_gone_or_of_another_version_is_forgotten() -> None:
    old, new = config("1"), config("2", a="1")
    key, written = objects.key_of(old), ReadYourWrites()
    for cached in (None, config("7")):
        written.add(old, new)
        written.newest(key, cached)
        assert written.newest(key, old) is old
    written.add(old, new)
    written.forget(key)
    assert written.newest(key, old) is old
