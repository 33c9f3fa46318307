"""Loads and settings are what the command line asks for."""

import asyncio
import base64
import json
import ssl
import sys

import aiohttp
import pytest

from apis import keys
from bench import arms, children, ideal, load, settings, waiting
from bench.observe import NUMBERED
from bench.suites import admission, offload
from tests.webhook.reviews import body


def test_a_pod_is_as_large_as_asked() -> None:
    size = len(json.dumps(load.pod("demo", "web", size=4096)))

    assert 3900 < size <= 4096 + 100


@pytest.mark.parametrize("size", admission.REVIEW_BYTES)
def test_a_review_is_about_as_large_as_asked(size: int) -> None:
    assert abs(len(json.dumps(load.review("demo", size))) - size) < size / 10


def test_an_object_shows_its_number() -> None:
    assert load.item(keys.CONFIG_MAP, "demo", "a", 1)["data"]["sequence"] == "1"
    assert load.item(keys.SECRET, "demo", "a", 1)["data"]["sequence"] == load.told(keys.SECRET, 1)
    service = load.item(keys.SERVICE, "demo", "a", 1)
    assert "1" in service["metadata"]["annotations"].values()
    assert service["metadata"]["labels"]


def test_a_flip_numbers_one_condition_and_keeps_the_others() -> None:
    ready = {"type": "Ready", "status": "True"}
    status = {"conditions": [ready, {"type": NUMBERED, "status": "True", "message": "1"}]}

    flipped = load.flip(status, 2)["conditions"]

    assert flipped == [ready, {"type": NUMBERED, "status": "True", "message": "2"}]


def test_the_ideal_remote_pod_goes_to_simulated_nodes() -> None:
    local = load.pod("demo", "web", **arms.scheduling("ideal"))["spec"]

    remote = ideal.remote_spec({**local, "nodeName": "here"})

    assert "nodeName" not in remote
    assert remote["nodeSelector"] == {"type": "simulated"}
    assert local["nodeSelector"] != remote["nodeSelector"]


def test_everything_is_run_unless_something_is_named() -> None:
    assert settings.parse([], {}) == settings.Settings()
    assert settings.parse(["burst", "idle"], {}).suites == ("idle", "burst")


def test_a_quick_run_takes_what_is_said_besides() -> None:
    given = settings.parse(["--quick", "--sizes", "10,5", "--arms", "ours,ideal"], {})

    assert given.sizes == (5, 10)
    assert given.arms == ("ideal", "ours")
    assert given.repetitions == settings.QUICK.repetitions


@pytest.mark.parametrize(
    "words", [["--arms", "theirs"], ["nonsense"], ["--load-seconds", "61"], ["--sizes", "many"]]
)
def test_nonsense_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        settings.parse(words, {})
    assert "usage" in capsys.readouterr().err


def test_histograms_of_webhooks_are_summed_over_their_series() -> None:
    name = "apiserver_admission_webhook_admission_duration_seconds"
    text = "\n".join(
        [
            f'{name}_sum{{name="a",operation="CREATE",rejected="false",type="admit"}} 0.5',
            f'{name}_count{{name="a",operation="CREATE",rejected="false",type="admit"}} 10',
            f'{name}_sum{{name="a",operation="UPDATE",rejected="false",type="admit"}} 0.5',
            f'{name}_count{{name="a",operation="UPDATE",rejected="false",type="admit"}} 10',
            f'{name}_sum{{name="b",operation="CREATE",rejected="false",type="validating"}} 9',
        ]
    )

    assert admission.durations(text) == {"a": (1.0, 20.0)}


def test_a_write_is_done_at_the_latest_when_it_was_seen() -> None:
    assert offload.since(5.0, 2.0, None) == 3.0
    assert offload.since(5.0, 4.5, 3.0) == 2.0
    assert offload.since(5.0, 2.0, 3.0) == 3.0
    assert offload.since(1.0, 2.0, None) == 0.0


# Many things at once, but not more than the client's queue can bear.


async def test_all_is_done_and_never_more_than_a_couple_of_hundred_at_once() -> None:
    under_way, most, done = 0, 0, 0

    async def work() -> None:
        nonlocal under_way, most, done
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        done += 1

    await waiting.together(work() for _ in range(3 * waiting.AT_ONCE))

    assert done == 3 * waiting.AT_ONCE
    assert most == waiting.AT_ONCE


async def test_what_fails_is_told() -> None:
    async def fail() -> None:
        raise RuntimeError("refused")

    with pytest.raises(RuntimeError, match="refused"):
        await waiting.together([fail()])


# The webhook with the constant answer, in Python, as an API server would ask it.


PATCH = '[{"op": "add", "path": "/spec/affinity", "value": {}}]'


async def test_it_allows_what_it_is_asked_with_the_patch() -> None:
    command = (sys.executable, "-m", "bench.constant", "127.0.0.1", PATCH)
    async with children.running(*command) as process, aiohttp.ClientSession() as session:
        address, certificate = await children.line(process), [await children.line(process)]
        while "-----END" not in certificate[-1]:
            certificate.append(await children.line(process))
        trusted = ssl.create_default_context(cadata="\n".join(certificate))

        async with session.post(f"https://{address}/", data=body({}), ssl=trusted) as answered:
            answer = await answered.json()

    assert answer["response"]["uid"] == json.loads(body({}))["request"]["uid"]
    assert answer["response"]["allowed"] is True
    assert base64.b64decode(answer["response"]["patch"]).decode() == PATCH
