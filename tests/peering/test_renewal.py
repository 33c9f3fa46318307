"""Certificates that live for a minute: renewed under way, and nobody notices.

``PYLIQO_RENEWAL_S`` sets how long calls are counted: 1800 with a lifetime of 3m is the run of
docs/parity.md F-25. Source: docs/parity.md F-25, F-26.
"""

import asyncio
import base64
import contextlib
import json
import ssl
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import pytest
import yaml

from apis import keys, naming, objects
from apis.objects import Key, Object, named
from certs import pki
from controllers.peers.foreigncluster import forge as foreigncluster
from kube import client, clock, errors, peer
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.credentials import from_kubeconfig
from sandbox import credentials
from tests.conftest import size_of
from tests.peering import world
from tests.peering.world import Member, World

pytestmark = pytest.mark.cluster

LIFETIME: Final = size_of("PYLIQO_RENEWAL_LIFETIME", "60s", "3m")
COUNTED_S: Final = size_of("PYLIQO_RENEWAL_S", 65.0, 1800.0)
LEAST: Final = int(COUNTED_S / objects.parse_duration(LIFETIME)) + 1
"""So many identities are used in that time, at least: each is renewed at two thirds of its life."""
PAUSE_S: Final = 0.1
SPACE: Final = "liqo-tenant-milan"
WATCHED: Final = Key("liqo-tenant-rome", "watched")
NUMBER: Final = "tests.example/number"
ENDED_S: Final = 2 * objects.parse_duration(LIFETIME) + 300
IDENTITIES: Final = (naming.controlplane_identity("milan"), naming.resourceslice_identity("milan"))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world.two_clusters(tmp_path_factory.mktemp("renewal"), lifetime=LIFETIME) as running:
        running.peer("rome", "milan")
        yield running


def test_no_call_fails_at_any_renewal(both: World) -> None:
    """As a kubelet and a replicator connect: by the Secret, and on by what it becomes.

    A watch goes on over each renewal, where it was: it tells every change once.
    """
    seen, *traffics = asyncio.run(_of_all(both))
    for traffic in traffics:
        assert traffic.failures == []
        assert traffic.calls > COUNTED_S
        assert len(traffic.used) >= LEAST
    assert seen.failures == []
    assert seen.told == list(range(len(seen.told)))
    assert len(seen.used) >= LEAST
    assert all(member.process and member.process.poll() is None for member in both.members.values())


@dataclass
class Traffic:
    """Calls to the provider by one identity, and what became of them."""

    failures: list[str] = field(default_factory=list)
    calls: int = 0
    used: set[str] = field(default_factory=set)
    """Digests of the credentials that were used."""


@dataclass
class Seen(Traffic):
    """What a watch told: ``calls`` is how often it was opened."""

    told: list[int] = field(default_factory=list)


async def _of_all(both: World) -> tuple[Seen, Traffic, Traffic]:
    control, slice_ = IDENTITIES
    return await asyncio.gather(
        _watched(both, control), _traffic(both, control), _traffic(both, slice_)
    )


async def _watched(both: World, identity: str) -> Seen:
    """Watch an object of the provider that changes all the time, until the last change is told."""
    secret, seen = Key(SPACE, naming.kubeconfig_secret(identity)), Seen()
    of = Selection(keys.NAMESPACE_MAP, Object, WATCHED.namespace)
    async with (
        client.connect(both["rome"].plane.kubeconfig, user_agent="tests") as home,
        client.connect(both["milan"].plane.kubeconfig, user_agent="tests") as milan,
        peer.follow(home, secret, user_agent="watch") as remote,
    ):
        version = (await remote.list(of)).version
        async with asyncio.timeout(COUNTED_S + ENDED_S), asyncio.TaskGroup() as tasks:
            changing = tasks.create_task(_change(milan))
            while not changing.done() or len(seen.told) < changing.result():
                seen.used.add(remote.access.digest)
                seen.calls += 1
                try:
                    version = await _follow(remote, of, version, seen.told, changing)
                except errors.KubeError as error:
                    seen.failures.append(repr(error))
                    await asyncio.sleep(PAUSE_S)
    sys.stderr.write(f"{len(seen.told)} changes, told by {seen.calls} watches\n")
    return seen


async def _change(milan: ClusterClient) -> int:
    """Change what is watched for a while; return how often."""
    loop = asyncio.get_running_loop()
    end, number = loop.time() + COUNTED_S, 0
    made = await milan.create(keys.NAMESPACE_MAP, _numbered(number))
    while loop.time() < end:
        await asyncio.sleep(PAUSE_S)
        number += 1
        await milan.patch(keys.NAMESPACE_MAP, WATCHED, {"metadata": _numbered(number)["metadata"]})
    await milan.delete(keys.NAMESPACE_MAP, WATCHED, uid=made["metadata"]["uid"])
    return number + 1


def _numbered(number: int) -> Object:
    annotations = {"annotations": {NUMBER: str(number)}}
    return named(keys.NAMESPACE_MAP, WATCHED, metadata=annotations, spec={})


async def _follow(
    remote: ClusterClient,
    of: Selection[Object],
    version: str,
    told: list[int],
    changing: asyncio.Task[int],
) -> str:
    """Note the changes until the watch ends, or has told the last; return how far it came."""
    async with contextlib.aclosing(remote.watch(of, version)) as events:
        async for event in events:
            version = event.version or version
            if event.key == WATCHED and event.type in {"ADDED", "MODIFIED"}:
                told.append(int(event.object["metadata"]["annotations"][NUMBER]))
            if event.key == WATCHED and event.type == "DELETED":
                await changing  # which deletes it as its last deed
                break
    return version


async def _traffic(both: World, identity: str) -> Traffic:
    secret = Key(SPACE, naming.kubeconfig_secret(identity))
    traffic = Traffic()
    loop = asyncio.get_running_loop()
    async with (
        client.connect(both["rome"].plane.kubeconfig, user_agent="tests") as home,
        peer.follow(home, secret, user_agent="traffic") as remote,
    ):
        end = loop.time() + COUNTED_S
        while loop.time() < end:
            traffic.used.add(remote.access.digest)
            traffic.calls += 1
            if said := await _call(remote):
                traffic.failures.append(said)
            await asyncio.sleep(PAUSE_S)
    sys.stderr.write(f"{identity}: {traffic.calls} calls, {len(traffic.used)} identities\n")
    return traffic


async def _call(remote: ClusterClient) -> str:
    """Return why the provider did not take the call; a refusal by RBAC shows who we are, too."""
    try:
        await remote.list(Selection(keys.RENEW, Object, "liqo-tenant-rome"))
    except errors.ForbiddenError:
        return ""
    except errors.KubeError as error:
        return repr(error)
    return ""


def test_certificates_that_are_deleted_on_both_sides_are_there_again(both: World) -> None:
    """The provider signs new ones; a finalizer keeps the Secret of the control plane."""
    control, slice_ = (naming.kubeconfig_secret(one) for one in IDENTITIES)
    there = (naming.remote_certificate(), naming.remote_certificate("milan"))
    sides = [("milan", "liqo-tenant-rome", there), ("rome", SPACE, (slice_, control))]
    gone = [
        (both[side], space, name, _uid(both[side], space, name))
        for side, space, names in sides
        for name in names
    ]
    for member, space, name, _ in gone:
        member.kubectl.run("delete", "secret", "--wait=false", "-n", space, name)

    for member, space, name, uid in gone[:-1]:
        world.wait(lambda: _uid(member, space, name) not in {"", uid}, f"another {name}")  # noqa: B023
    assert _uid(both["rome"], SPACE, control) == gone[-1][-1]
    world.wait(lambda: _is_accepted(both), "the next certificate to be taken over", ENDED_S)


def _uid(member: Member, space: str, name: str) -> str:
    of_secret = ("get", "secret", "-n", space, name, "--ignore-not-found")
    return member.kubectl.run(*of_secret, "-o", "jsonpath={.metadata.uid}")


def test_a_provider_replaces_its_authority_under_way(both: World) -> None:
    """D14: the consumer takes old and new, and goes on when the old one has gone."""
    milan, lifetime = both["milan"], timedelta(days=1)
    old = (milan.plane.files.pki / "ca.crt").read_bytes()
    new = pki.new_ca("next-ca", now=clock.now(), lifetime=lifetime)
    serving = pki.issue(
        new, common_name="kube-apiserver", dns=("localhost",), ips=("127.0.0.1",), server=True,
        now=clock.now(), lifetime=lifetime,
    )  # fmt: skip

    trust(milan, old + new.certificate)
    world.wait(lambda: _trusted(both) == {old + new.certificate}, "both to be known", ENDED_S)
    credentials.write(milan.plane.files.pki / "apiserver.key", serving.key)
    credentials.write(milan.plane.files.pki / "apiserver.crt", serving.certificate)
    world.wait(lambda: _served_by(milan) == serving.certificate.decode(), "the new certificate")
    assert _is_accepted(both)

    trust(milan, new.certificate)
    both["rome"].kill()
    both["rome"].start()
    world.wait(lambda: _trusted(both) == {new.certificate}, "the old one to go", ENDED_S)
    assert _is_accepted(both)
    changed = ("get", "events", "-A", "-o", "name", "--field-selector=reason=ServerChanged")
    assert both["rome"].kubectl.run(*changed) == ""


def trust(member: Member, authorities: bytes) -> None:
    """Let clients of ``member`` trust ``authorities``: its administrator's and its controllers'."""
    for path in (member.plane.kubeconfig, member.kubeconfig):
        config = yaml.safe_load(path.read_text())
        data = base64.b64encode(authorities).decode()
        config["clusters"][0]["cluster"]["certificate-authority-data"] = data
        credentials.write(path, json.dumps(config).encode())


def _trusted(both: World) -> set[bytes]:
    """Return by which authorities rome's identities know milan."""
    return {from_kubeconfig(_kubeconfig(both, one)).ca for one in IDENTITIES}


def _served_by(member: Member) -> str:
    port = int(member.plane.server.rpartition(":")[2])
    return ssl.get_server_certificate(("127.0.0.1", port))


def _kubeconfig(both: World, identity: str) -> bytes:
    return both["rome"].secret(SPACE, naming.kubeconfig_secret(identity), "kubeconfig")


def test_a_signer_that_refuses_is_told_of_and_what_has_ended_takes_the_same_command(
    both: World,
) -> None:
    """F26: nobody can fetch a new certificate with one that has ended."""
    milan = both["milan"].kubectl
    told = ("get", "events", "-A", "-o", "name", "--field-selector=reason=CertificateNotRenewed")
    with both["milan"].without("signers"):
        world.wait(lambda: _refusals(both) > 0, "a refusal", ENDED_S)
        world.wait(lambda: milan.run(*told), "an event")
        world.wait(lambda: not _is_accepted(both), "the identity to end", ENDED_S)
    both["rome"].kill()
    both["rome"].start()
    world.wait(lambda: foreigncluster.ENDED in _told_of_milan(both), "the command", ENDED_S)

    both.peer("rome", "milan")

    world.wait(lambda: _is_accepted(both), "the fresh identity to be accepted", ENDED_S)


def _told_of_milan(both: World) -> str:
    found = both["rome"].kubectl.get("foreigncluster", "milan")
    return json.dumps(found.get("status"))


def _refusals(both: World) -> int:
    return both["milan"].log().count("could not be renewed")


def _is_accepted(both: World) -> bool:
    who = both.identity("rome", "milan")
    return not world.refusal(who, "get", "renews", "-n", "liqo-tenant-rome")
