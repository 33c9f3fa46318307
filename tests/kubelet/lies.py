"""What a provider may say of a Pod or ShadowPod, of any shape, as strategies of hypothesis."""

from hypothesis import strategies as st

from apis import keys

RANK = {"Pending": 0, "Running": 1, "Unknown": 1, "Succeeded": 2, "Failed": 2}
words = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["Running", "Succeeded", "main", "True", "Ready", "127.0.0.1", "10.1.0.7"]),
    st.sampled_from(["2026-01-31T11:00:00Z", "9999-12-31T00:00:00Z", "2026-02-31T00:00:00Z"]),
    st.just("x" * 5000),
    st.just("\x1b[31m\r\u202e"),
)
junk = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), words),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)
states = st.one_of(
    junk,
    st.dictionaries(
        st.sampled_from(["waiting", "running", "terminated", "other"]),
        st.one_of(
            junk,
            st.dictionaries(
                st.sampled_from(["exitCode", "signal", "reason", "message", "startedAt"]), junk
            ),
        ),
    ),
)
containers = st.one_of(
    junk,
    st.lists(
        st.fixed_dictionaries(
            {"name": st.sampled_from(["main", "other"])},
            optional={
                "state": states,
                "lastState": states,
                "restartCount": st.one_of(junk, st.just(2**40)),
                "ready": junk,
                "started": junk,
                "image": junk,
                "imageID": junk,
                "containerID": junk,
                "allocatedResources": junk,
                "resources": st.one_of(junk, st.fixed_dictionaries({"requests": junk})),
                "volumeMounts": st.one_of(
                    junk,
                    st.lists(st.fixed_dictionaries({"name": junk, "mountPath": junk}), max_size=2),
                ),
                "user": st.one_of(junk, st.fixed_dictionaries({"linux": junk})),
            },
        ),
        max_size=3,
    ),
)
conditions = st.one_of(
    junk,
    st.lists(
        st.fixed_dictionaries(
            {
                "type": st.one_of(words, st.just("Ready"), junk),
                "status": st.one_of(words, st.just("True"), junk),
            },
            optional={
                "message": junk,
                "reason": junk,
                "lastTransitionTime": junk,
                "lastProbeTime": junk,
                "observedGeneration": junk,
            },
        ),
        max_size=4,
    ),
)
statuses = st.one_of(
    junk,
    st.fixed_dictionaries(
        {},
        optional={
            "phase": st.one_of(words, st.sampled_from(sorted(RANK))),
            "podIP": st.one_of(words, junk),
            "observedGeneration": junk,
            "message": junk,
            "reason": junk,
            "startTime": junk,
            "conditions": conditions,
            "containerStatuses": containers,
            "initContainerStatuses": containers,
        },
    ),
)


notes = st.one_of(
    junk,
    st.dictionaries(
        st.sampled_from(
            [
                keys.LOCAL_POD_GENERATION,
                keys.LOCAL_POD_UID,
                keys.APPLIED_META,
                keys.ORIGIN,
                keys.DESTINATION,
                keys.NODE_NAME,
            ]
        ),
        st.one_of(words, junk, st.just("9" * 5000), st.sampled_from(["rome", "milan", "3"])),
    ),
)
metadata = st.one_of(
    junk,
    st.fixed_dictionaries(
        {},
        optional={
            name: st.one_of(notes, junk)
            for name in (
                "name",
                "namespace",
                "uid",
                "resourceVersion",
                "generation",
                "labels",
                "annotations",
                "finalizers",
                "deletionTimestamp",
            )
        },
    ),
)
"""Also in place of all metadata at once."""
podspecs = st.one_of(
    junk,
    st.fixed_dictionaries(
        {},
        optional={
            "containers": st.one_of(junk, st.lists(st.dictionaries(words, junk), max_size=2)),
            "tolerations": junk,
            "ephemeralContainers": junk,
            "activeDeadlineSeconds": junk,
        },
    ),
)
twins = st.fixed_dictionaries(
    {"metadata": metadata},
    optional={
        "status": statuses,
        "spec": st.one_of(junk, st.fixed_dictionaries({"pod": podspecs})),
    },
)
