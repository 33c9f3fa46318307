"""Nonces, identities and their renewal, each reconciled until nothing is written any more."""

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest

from apis import authentication, keys, objects
from apis.authentication import AuthParams
from apis.objects import Key, Object, named
from certs import identity, pki
from controllers.authentication.identity import forge
from controllers.authentication.identity.reconciler import (
    IdentityReconciler,
    SliceIdentityReconciler,
)
from controllers.authentication.nonce import NonceReconciler
from controllers.authentication.renewal import LocalRenewReconciler, RemoteRenewReconciler
from controllers.manager import Manager
from kube import kubeconfig
from kube.controller import Reconciler
from tests import factories
from tests.controllers.support import Ledger, Told, end, make, manager_of, settle, there
from tests.fakes import FakeCluster

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPACE = "liqo-tenant-milan"
CONTROL = Key(SPACE, "controlplane-milan")
SECRET = Key(SPACE, "kubeconfig-controlplane-milan")
SLICE = Key(SPACE, "pool")
KEY = identity.new_key()
CA = pki.new_ca("ca", now=NOW, lifetime=timedelta(days=10))


def certificate(key: bytes = KEY, hours: int = 24, *, after: float = 0) -> bytes:
    """Return one that is signed ``after`` so many hours."""
    request = pki.new_csr(key, common_name="rome", organizations=["liqo.io"])
    now, lifetime = NOW + timedelta(hours=after), timedelta(hours=hours)
    return pki.sign(CA, request, client=True, now=now, lifetime=lifetime)


CERTIFICATE = certificate()
PARAMS = AuthParams("https://milan.example:6443", CA.certificate, CERTIFICATE)


class Rome:
    """The consumer, with the tenant namespace of milan."""

    def __init__(self) -> None:
        self.fake = FakeCluster(strict=True)
        self.cluster = Ledger(self.fake)
        self.told = Told(self.cluster)
        self.now = NOW

    async def prepare(self) -> "Rome":
        await self.fake.create(keys.NAMESPACE, factories.tenant_namespace(SPACE, "milan"))
        return self

    def nonces(self) -> NonceReconciler:
        return NonceReconciler(self.manager(), bytes)

    def identities(self) -> IdentityReconciler:
        return IdentityReconciler(self.manager())

    def manager(self, later: timedelta = timedelta()) -> Manager:
        return manager_of(
            self.cluster,
            events=self.told.recorder,
            clock=lambda: self.now + later,
            cluster_id="rome",
            private_key=KEY,
        )

    async def settle(self, reconciler: Reconciler, key: Key) -> None:
        await settle(reconciler, key, self.cluster)


@pytest.fixture
async def rome() -> Rome:
    return await Rome().prepare()


def identity_secret(name: str, label: str, **data: str) -> Object:
    encoded = {field: base64.b64encode(text.encode()).decode() for field, text in data.items()}
    return named(keys.SECRET, Key(SPACE, name), metadata={"labels": {label: "true"}}, data=encoded)


async def read(rome: Rome, name: str, field: str) -> bytes:
    found = await there(rome.fake, keys.SECRET, Key(SPACE, name))
    return base64.b64decode((found.get("data") or {}).get(field, ""))


# Nonces -------------------------------------------------------------------------------------------


async def test_a_provider_fills_in_a_nonce_for_the_peer_of_the_namespace(rome: Rome) -> None:
    await rome.fake.create(keys.SECRET, identity_secret("liqo-nonce", keys.NONCE_LABEL))

    await rome.settle(rome.nonces(), Key(SPACE, "liqo-nonce"))

    text = (await read(rome, "liqo-nonce", "nonce")).decode()
    assert authentication.nonce_problem(text, "milan", "rome", NOW) == ""


async def test_a_nonce_that_nobody_used_in_time_goes(rome: Rome) -> None:
    where = Key(SPACE, "liqo-nonce")
    await rome.fake.create(keys.SECRET, identity_secret("liqo-nonce", keys.NONCE_LABEL))
    await rome.settle(rome.nonces(), where)
    assert await rome.nonces().reconcile(where) == 600, "it looks again then"
    rome.now += timedelta(minutes=11)

    await rome.settle(rome.nonces(), where)

    assert await rome.fake.get_live(keys.SECRET, where) is None


async def test_a_nonce_that_a_consumer_brought_with_an_end_of_its_own_goes(rome: Rome) -> None:
    where = Key(SPACE, "liqo-nonce")
    text = authentication.nonce_text("milan", "rome", bytes(32), NOW + timedelta(days=1))
    await rome.fake.create(keys.SECRET, identity_secret("liqo-nonce", keys.NONCE_LABEL, nonce=text))

    await rome.settle(rome.nonces(), where)

    assert await rome.fake.get_live(keys.SECRET, where) is None


async def test_a_consumer_signs_the_nonce_of_the_peer_of_the_namespace(rome: Rome) -> None:
    text = authentication.nonce_text("rome", "milan", bytes(32), NOW)
    await rome.fake.create(
        keys.SECRET, identity_secret("liqo-signed-nonce", keys.SIGNED_NONCE_LABEL, nonce=text)
    )

    await rome.settle(rome.nonces(), Key(SPACE, "liqo-signed-nonce"))

    signature = await read(rome, "liqo-signed-nonce", "signedNonce")
    assert identity.is_signed(pki.public_key(KEY), text.encode(), signature)


@pytest.mark.parametrize(
    "text",
    [
        authentication.nonce_text("turin", "milan", bytes(32), NOW),
        authentication.nonce_text("rome", "turin", bytes(32), NOW),
        "-----BEGIN CERTIFICATE REQUEST-----",
        "0" * 88_000,
    ],
)
async def test_what_is_no_nonce_for_it_is_not_signed(rome: Rome, text: str) -> None:
    await rome.fake.create(
        keys.SECRET, identity_secret("liqo-signed-nonce", keys.SIGNED_NONCE_LABEL, nonce=text)
    )

    await rome.settle(rome.nonces(), Key(SPACE, "liqo-signed-nonce"))

    assert await read(rome, "liqo-signed-nonce", "signedNonce") == b""
    assert rome.told.reasons == ["NonceNotSigned"]


@factories.cases("space, name, label")
async def test_look_alikes_are_left_alone(rome: Rome, space: str, name: str, label: str) -> None:
    made = identity_secret(name, label)
    made["metadata"]["namespace"] = space
    await rome.fake.create(keys.SECRET, made)

    await rome.settle(rome.nonces(), Key(space, name))

    assert rome.cluster.writes == []


# Identities ---------------------------------------------------------------------------------------


def control(params: AuthParams = PARAMS, **spec: object) -> Object:
    body = {
        "clusterID": "milan",
        "type": "ControlPlane",
        "authParams": params.shown(),
        "namespace": "liqo-tenant-rome",
        **spec,
    }
    return named(keys.IDENTITY, CONTROL, spec=body)


async def test_the_kubeconfig_is_as_the_layout_says(rome: Rome) -> None:
    made = await rome.fake.create(keys.IDENTITY, control())

    await rome.settle(rome.identities(), CONTROL)

    found = await there(rome.fake, keys.SECRET, SECRET)
    text = await read(rome, SECRET.name, "kubeconfig")
    said = kubeconfig.parse(text)
    assert objects.labels(found).items() >= {
        "liqo.io/remote-cluster-id": "milan",
        "liqo.io/identity-type": "ControlPlane",
    }.items()  # fmt: skip
    assert objects.annotations(found) == {"liqo.io/remote-tenant-namespace": "liqo-tenant-rome"}
    assert objects.is_controlled_by(found, made)
    assert (said.server, said.ca, said.certificate, said.key, said.namespace) == (
        PARAMS.api_server,
        PARAMS.ca,
        CERTIFICATE,
        KEY,
        "liqo-tenant-rome",
    )
    config = json.loads(text)
    assert config["clusters"][0]["name"] == "milan"
    assert config["users"][0]["name"] == "controlplane-milan"
    assert config["current-context"] == "default-context"
    shown = await there(rome.fake, keys.IDENTITY, CONTROL)
    assert shown["status"] == {"kubeconfigSecretRef": {"name": SECRET.name}}


@pytest.mark.parametrize(
    "refused",
    [
        control(AuthParams("http://milan:6443", b"", CERTIFICATE)),
        control(AuthParams("", b"", CERTIFICATE)),
        control(AuthParams("https://u:p@milan:6443", b"", CERTIFICATE)),
        control(AuthParams("https://milan:6443/?x=y", b"", CERTIFICATE)),
        control(AuthParams("https://milan:6443", b"", certificate(identity.new_key()))),
        control(AuthParams("https://milan:6443", b"", b"nonsense")),
        control(AuthParams("https://milan:6443", b"", b"")),
        control(authParams={"ca": "%"}),
        control(type="Other"),
    ],
)
async def test_what_leads_nowhere_or_elsewhere_is_refused(rome: Rome, refused: Object) -> None:
    await rome.fake.create(keys.IDENTITY, refused)

    await rome.settle(rome.identities(), CONTROL)

    assert await rome.fake.get_live(keys.SECRET, SECRET) is None
    assert set(rome.told.reasons) <= {"InvalidAuthParams", "InvalidIdentity"}
    assert rome.told.reasons


async def test_a_secret_of_somebody_else_is_not_taken(rome: Rome) -> None:
    theirs = named(keys.SECRET, SECRET, data={"kubeconfig": "eA=="})
    await rome.fake.create(keys.SECRET, theirs)
    await rome.fake.create(keys.IDENTITY, control())

    with pytest.raises(Exception, match="is not ours"):
        await rome.settle(rome.identities(), CONTROL)

    assert (await there(rome.fake, keys.SECRET, SECRET))["data"] == {"kubeconfig": "eA=="}


async def test_the_kubeconfig_stays_as_long_as_anything_is_to_be_withdrawn(rome: Rome) -> None:
    await rome.fake.create(keys.IDENTITY, control())
    await rome.settle(rome.identities(), CONTROL)
    await end(rome.fake, keys.IDENTITY, CONTROL)
    await end(rome.fake, keys.SECRET, SECRET)  # as the garbage collector does
    labels = {keys.REPLICATION: "true", keys.REMOTE_ID: "milan"}
    renew = named(keys.RENEW, CONTROL, metadata={"labels": labels})
    elsewhere = named(keys.RENEW, Key("other", "x"), metadata={"labels": labels})

    await rome.fake.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", "other")))
    for each in (renew, elsewhere):
        await rome.fake.create(keys.RENEW, each)

    await rome.settle(rome.identities(), CONTROL)
    stays = await rome.fake.get_live(keys.SECRET, SECRET)
    await end(rome.fake, keys.RENEW, CONTROL)
    await rome.settle(rome.identities(), CONTROL)

    assert stays is not None
    assert await rome.fake.get_live(keys.SECRET, SECRET) is None


async def test_peering_anew_takes_the_place_of_what_is_still_going(rome: Rome) -> None:
    await rome.fake.create(keys.IDENTITY, control())
    await rome.settle(rome.identities(), CONTROL)
    await end(rome.fake, keys.IDENTITY, CONTROL)
    await end(rome.fake, keys.SECRET, SECRET)
    made = await rome.fake.create(keys.IDENTITY, control())

    await rome.settle(rome.identities(), CONTROL)

    assert objects.is_controlled_by(await there(rome.fake, keys.SECRET, SECRET), made)


def slice_(answer: str = "Accepted", params: AuthParams = PARAMS) -> Object:
    labels = {keys.REPLICATION: "true", keys.REMOTE_ID: "milan"}
    conditions = [{"type": "Authentication", "status": answer}]
    status = {"conditions": conditions, "authParams": params.shown()}
    return named(keys.RESOURCE_SLICE, SLICE, metadata={"labels": labels}, spec={}, status=status)


async def put_slice(rome: Rome, found: Object) -> None:
    await rome.fake.create(keys.RESOURCE_SLICE, found)
    await rome.fake.patch_status(keys.RESOURCE_SLICE, SLICE, found["status"])


async def test_an_accepted_slice_has_an_identity_and_a_denied_one_has_none(rome: Rome) -> None:
    await rome.fake.create(keys.IDENTITY, control())
    await put_slice(rome, slice_())
    reconciler = SliceIdentityReconciler(rome.manager())
    where = Key(SPACE, "resourceslice-pool")

    await rome.settle(reconciler, SLICE)
    made = await there(rome.fake, keys.IDENTITY, where)
    denied = {"conditions": [{"type": "Authentication", "status": "Denied"}]}
    await rome.fake.patch_status(keys.RESOURCE_SLICE, SLICE, denied)
    await rome.settle(reconciler, SLICE)

    assert made["spec"]["type"] == "ResourceSlice"
    assert objects.labels(made)["liqo.io/resourceslice-name"] == "pool"
    assert AuthParams.parse(made["spec"]["authParams"]) == PARAMS
    assert await rome.fake.get_live(keys.IDENTITY, where) is None


ELSEWHERE = [
    AuthParams("https://10.0.0.1:6443", CA.certificate, CERTIFICATE),
    AuthParams("https://milan.example:443", CA.certificate, CERTIFICATE),
    AuthParams(PARAMS.api_server, b"another CA", CERTIFICATE),
    AuthParams(PARAMS.api_server, b"", CERTIFICATE),
    AuthParams(PARAMS.api_server, CA.certificate, CERTIFICATE, "http://proxy"),
]


@pytest.mark.parametrize("params", ELSEWHERE)
async def test_a_slice_leads_to_no_other_server_than_the_peering(
    rome: Rome, params: AuthParams
) -> None:
    """B4: the provider's word does not move where this cluster connects."""
    await rome.fake.create(keys.IDENTITY, control())
    await put_slice(rome, slice_(params=params))

    await rome.settle(SliceIdentityReconciler(rome.manager()), SLICE)

    made = await there(rome.fake, keys.IDENTITY, Key(SPACE, "resourceslice-pool"))
    assert AuthParams.parse(made["spec"]["authParams"]) == PARAMS, "its certificate, our server"
    assert set(rome.told.reasons) == {"ServerChanged"}
    assert f"({PARAMS.api_server!r}), which stays in use: " in forge.change(params, PARAMS)


# Renewal ------------------------------------------------------------------------------------------


def renewal(rome: Rome) -> LocalRenewReconciler:
    return LocalRenewReconciler(rome.manager(timedelta(hours=2)))


async def answer_renewal(rome: Rome, params: AuthParams) -> None:
    await rome.fake.patch_status(keys.RENEW, CONTROL, {"authParams": params.shown()})


async def held(rome: Rome) -> AuthParams:
    found = await there(rome.fake, keys.IDENTITY, CONTROL)
    return AuthParams.parse(found["spec"]["authParams"])


async def test_a_later_certificate_is_taken_over_and_an_older_one_is_not(rome: Rome) -> None:
    assert await renewal(rome).reconcile(CONTROL) is None, "nobody's"
    await rome.fake.create(keys.IDENTITY, control())
    await rome.settle(renewal(rome), CONTROL)
    renew = await there(rome.fake, keys.RENEW, CONTROL)
    later = AuthParams(PARAMS.api_server, PARAMS.ca, certificate(hours=20, after=1))

    await answer_renewal(rome, later)
    await rome.settle(renewal(rome), CONTROL)
    taken = await held(rome)
    await answer_renewal(rome, PARAMS)
    await rome.settle(renewal(rome), CONTROL)

    assert objects.labels(renew)["liqo.io/remoteID"] == "milan"
    assert renew["spec"] == {"consumerClusterID": "rome", "identityType": "ControlPlane"}
    assert taken == later
    assert await held(rome) == later


@pytest.mark.parametrize("is_held", [False, True])
async def test_a_certificate_for_another_key_is_told_and_keeps_no_honest_one_away(
    rome: Rome, *, is_held: bool
) -> None:
    """Its end may be far away, and an Identity may hold one from before this was checked."""
    bad = AuthParams(PARAMS.api_server, PARAMS.ca, certificate(identity.new_key(), 90_000, after=2))
    good = AuthParams(PARAMS.api_server, PARAMS.ca, certificate(hours=20, after=1))
    await rome.fake.create(keys.IDENTITY, control(bad) if is_held else control())
    await rome.settle(renewal(rome), CONTROL)
    if not is_held:
        await answer_renewal(rome, bad)
        await rome.settle(renewal(rome), CONTROL)
        assert await held(rome) == PARAMS
        assert set(rome.told.reasons) == {"InvalidAuthParams"}
        assert await renewal(rome).reconcile(CONTROL) is None

    await answer_renewal(rome, good)
    await rome.settle(renewal(rome), CONTROL)

    assert await held(rome) == good


@pytest.mark.parametrize("is_held", [False, True])
async def test_a_certificate_that_begins_in_the_future_keeps_no_honest_one_away(
    rome: Rome, *, is_held: bool
) -> None:
    """All honest ones begin before it; an Identity may hold one from before this was checked."""
    after = 100 if is_held else 3 + 10.1 / 60  # begins an hour before
    bad = AuthParams(PARAMS.api_server, PARAMS.ca, certificate(after=after))
    good = AuthParams(PARAMS.api_server, PARAMS.ca, certificate(after=1))
    await rome.fake.create(keys.IDENTITY, control(bad) if is_held else control())
    await rome.settle(renewal(rome), CONTROL)
    if not is_held:
        await answer_renewal(rome, bad)
        await rome.settle(renewal(rome), CONTROL)
        assert await held(rome) == PARAMS
        assert set(rome.told.reasons) == {"InvalidAuthParams"}
        assert await renewal(rome).reconcile(CONTROL) == 600, "its time may come"

    await answer_renewal(rome, good)
    await rome.settle(renewal(rome), CONTROL)

    assert await held(rome) == good


@pytest.mark.parametrize("params", ELSEWHERE)
async def test_a_renewal_leads_to_no_other_server(rome: Rome, params: AuthParams) -> None:
    await rome.fake.create(keys.IDENTITY, control())
    await rome.settle(renewal(rome), CONTROL)
    moved = AuthParams(params.api_server, params.ca, certificate(after=1), params.proxy_url)
    await answer_renewal(rome, moved)

    await rome.settle(renewal(rome), CONTROL)

    renewed = AuthParams(PARAMS.api_server, PARAMS.ca, moved.certificate)
    assert await held(rome) == renewed, "the certificate is for our key, whoever names which server"
    assert set(rome.told.reasons) == {"ServerChanged"}


async def test_an_authority_is_replaced_step_by_step(rome: Rome) -> None:
    """The provider names old and new, then the new one alone: also without another certificate."""
    new = pki.new_ca("next", now=NOW, lifetime=timedelta(days=10)).certificate
    await rome.fake.create(keys.IDENTITY, control())
    await rome.settle(renewal(rome), CONTROL)
    for ca in (PARAMS.ca + new, new):
        said = AuthParams(PARAMS.api_server, ca, PARAMS.certificate)
        await answer_renewal(rome, said)
        await rome.settle(renewal(rome), CONTROL)
        assert await held(rome) == said

    await answer_renewal(rome, PARAMS)
    await rome.settle(renewal(rome), CONTROL)
    assert (await held(rome)).ca == new, "the one that is gone does not come back"
    assert set(rome.told.reasons) == {"ServerChanged"}


async def test_a_bundle_without_end_is_not_taken(rome: Rome) -> None:
    more = [pki.new_ca(f"n{n}", now=NOW, lifetime=timedelta(days=10)) for n in range(16)]
    await rome.fake.create(keys.IDENTITY, control())
    await rome.settle(renewal(rome), CONTROL)
    many = PARAMS.ca + b"".join(each.certificate for each in more)
    await answer_renewal(rome, AuthParams(PARAMS.api_server, many, PARAMS.certificate))

    await rome.settle(renewal(rome), CONTROL)

    assert await held(rome) == PARAMS


def tenant_of_milan(condition: str = "Active", cluster_id: str = "milan") -> Object:
    spec = {"clusterID": cluster_id, "tenantCondition": condition}
    status = {"authParams": PARAMS.shown()}
    return named(keys.TENANT, Key(SPACE, cluster_id), spec=spec, status=status)


@pytest.mark.parametrize(
    ("found", "origin", "is_answered"),
    [
        (tenant_of_milan(), "milan", True),
        (tenant_of_milan("Cordoned"), "milan", True),
        (tenant_of_milan("Drained"), "milan", False),
        (tenant_of_milan(cluster_id="turin"), "milan", False),
        (tenant_of_milan(), "turin", False),
    ],
)
async def test_a_renew_is_answered_by_the_tenant_of_its_namespace(
    rome: Rome, found: Object, origin: str, *, is_answered: bool
) -> None:
    """Here rome is the provider, and the namespace is milan's."""
    labels = {keys.REPLICATED: "true", keys.ORIGIN_ID: origin}
    where = Key(SPACE, "controlplane-rome")
    await rome.fake.create(keys.RENEW, named(keys.RENEW, where, metadata={"labels": labels}))
    await make(rome.fake, keys.TENANT, found, status=found["status"])

    await rome.settle(RemoteRenewReconciler(rome.manager()), where)

    renew = await there(rome.fake, keys.RENEW, where)
    assert ("status" in renew and bool(renew["status"].get("authParams"))) is is_answered


@factories.cases("condition, origin, ref, is_answered")
async def test_a_renew_of_a_slice_is_answered_by_the_slice(
    rome: Rome, condition: str, origin: str, ref: object, *, is_answered: bool
) -> None:
    """Liqo asks for each identity; that of the control plane would have other rights."""
    spec = {"identityType": "ResourceSlice", "consumerClusterID": "milan", "csr": "YQ=="}
    labels = {keys.REPLICATED: "true", keys.ORIGIN_ID: "milan"}
    where = Key(SPACE, "resourceslice-rome")
    wanted = named(keys.RENEW, where, metadata={"labels": labels}, spec=spec)
    if ref:
        wanted["spec"] = {**spec, "resourceSliceRef": ref}
    await rome.fake.create(keys.RENEW, wanted)
    of_slice = AuthParams(PARAMS.api_server, PARAMS.ca, certificate(hours=20)).shown()
    metadata = {"labels": {**labels, keys.ORIGIN_ID: origin}}
    asked = Key(SPACE, "rome")
    await rome.fake.create(
        keys.RESOURCE_SLICE, named(keys.RESOURCE_SLICE, asked, metadata=metadata)
    )
    await rome.fake.patch_status(keys.RESOURCE_SLICE, asked, {"authParams": of_slice})
    found = tenant_of_milan(condition)
    await make(rome.fake, keys.TENANT, found, status=found["status"])

    await rome.settle(RemoteRenewReconciler(rome.manager()), where)

    renew = await there(rome.fake, keys.RENEW, where)
    shown = (renew.get("status") or {}).get("authParams")
    assert shown == (of_slice if is_answered else None)
