"""How often something is done for a name."""

from kube.ratelimit import Buckets


def test_a_flood_about_one_name_does_not_drown_the_others() -> None:
    now = [0.0]
    pace = Buckets(lambda: now[0])

    flood = sum(pace.allows("Pod/web") for _ in range(100_000))
    others = pace.allows("Pod/api")
    now[0] = 10.0
    later = sum(pace.allows("Pod/web") for _ in range(1_000))

    assert (flood, others, later) == (25, True, 10)


def test_it_says_when_the_next_token_comes() -> None:
    now = [0.0]
    pace = Buckets(lambda: now[0], per_second=4, burst=2)

    assert [pace.left_s("x") for _ in range(3)] == [0, 0, 0.25]
    now[0] = 0.25
    assert pace.left_s("x") == 0
