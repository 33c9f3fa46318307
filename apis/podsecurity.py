"""The Pod Security Standards, as the API server evaluates them on pods. Pure.

They are checked here because a ShadowPod is no pod yet, and its Pod is created by the provider.
Source: Kubernetes, "Pod Security Standards"; docs/parity.md SEC-A1.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from apis import validation
from apis.objects import Object

CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_CAPABILITIES: Final = frozenset(
    [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ]
)
_SYSCTLS: Final = frozenset(
    [
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_wmem",
    ]
)
_SELINUX_TYPES: Final = frozenset(
    ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
)
_PROFILES: Final = frozenset(("", "RuntimeDefault", "Localhost"))
RESTRICTED_VOLUMES: Final = frozenset(
    [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ]
)
_APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS: Final = ("postStart", "preStop")
"""Of ``lifecycle``, which has a ``stopSignal``, too: a string. Source: Kubernetes, "Pod Lifecycle".
"""


def violations(spec: Object, level: str) -> Iterator[str]:
    """Yield what ``level`` (privileged, baseline, restricted) forbids in a pod of this PodSpec.

    Each names the field first: ``containers[0].securityContext.privileged must not be true``.

    Raises:
        DeniedError: something is of another shape than in a PodSpec.
    """
    if level == "privileged":
        return
    context = validation.struct(spec.get("securityContext"), "securityContext")
    is_restricted, is_own_user = level == "restricted", spec.get("hostUsers") is False
    yield from _host(spec)
    yield from _context(context, "securityContext")
    yield from _sysctls(context)
    for path, container in containers(spec):
        yield from _container(container, path)
        if is_restricted or not is_own_user:
            yield from _proc_mount(container, path)
        if is_restricted:
            yield from _restricted(container, spec, path)
    if is_restricted:
        yield from () if is_own_user else _root(context, {}, "securityContext", is_pod=True)
        yield from _restricted_volumes(spec)


def containers(spec: Object) -> Iterator[tuple[str, Object]]:
    """Yield the containers of all three kinds, each with its path."""
    for field in CONTAINERS:
        for index, container in enumerate(validation.structs(spec.get(field), field)):
            yield f"{field}[{index}]", container


def _sysctls(context: Object) -> Iterator[str]:
    for index, sysctl in enumerate(validation.structs(context.get("sysctls"), "sysctls")):
        if validation.text(sysctl.get("name"), "sysctls") not in _SYSCTLS:
            named = f"securityContext.sysctls[{index}] {sysctl.get('name')}"
            yield f"{named} is not safe, as kernel.shm_rmid_forced and some of net.ipv4 are"


def app_armor(annotations: Mapping[str, str]) -> Iterator[str]:
    """Yield the annotations that ask for a profile other than those that are known."""
    for name, value in annotations.items():
        is_allowed = value in ("", "runtime/default") or value.startswith("localhost/")
        if name.startswith(_APP_ARMOR) and not is_allowed:
            yield f"metadata.annotations: {name} must be runtime/default or localhost/..."


def _host(spec: Object) -> Iterator[str]:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield f"{name} must not be true"
    for index, volume in enumerate(validation.structs(spec.get("volumes"), "volumes")):
        if volume.get("hostPath") is not None:
            yield f"volumes[{index}].hostPath must not be set"


def _container(container: Object, path: str) -> Iterator[str]:
    where = f"{path}.securityContext"
    context = validation.struct(container.get("securityContext"), where)
    yield from _context(context, where)
    if context.get("privileged"):
        yield f"{where}.privileged must not be true"
    added = validation.struct(context.get("capabilities"), f"{where}.capabilities").get("add")
    for name in validation.items(added, f"{where}.capabilities.add"):
        if validation.text(name, f"{where}.capabilities.add") not in _CAPABILITIES:
            yield f"{where}.capabilities.add must not have {name}"
    for index, port in enumerate(validation.structs(container.get("ports"), f"{path}.ports")):
        if port.get("hostPort"):
            yield f"{path}.ports[{index}].hostPort must not be set"
    yield from _probed_hosts(container, path)


def _proc_mount(container: Object, path: str) -> Iterator[str]:
    where = f"{path}.securityContext"
    context = validation.struct(container.get("securityContext"), where)
    if validation.text(context.get("procMount"), f"{where}.procMount") not in ("", "Default"):
        yield f"{where}.procMount must be Default"


def _probed_hosts(container: Object, path: str) -> Iterator[str]:
    lifecycle = validation.struct(container.get("lifecycle"), f"{path}.lifecycle")
    handlers = {f"{path}.{name}": container.get(name) for name in _PROBES}
    handlers |= {f"{path}.lifecycle.{name}": lifecycle.get(name) for name in _HOOKS}
    for where, handler in handlers.items():
        for action in ("httpGet", "tcpSocket"):
            found = validation.struct(handler, where).get(action)
            if validation.struct(found, f"{where}.{action}").get("host"):
                yield f"{where}.{action}.host must not be set"


def _context(context: Object, where: str) -> Iterator[str]:
    """Yield what neither a pod's nor a container's security context may have."""
    for name in ("seccompProfile", "appArmorProfile"):
        if _type(context.get(name), f"{where}.{name}") not in _PROFILES:
            yield f"{where}.{name}.type must be RuntimeDefault or Localhost"
    selinux = validation.struct(context.get("seLinuxOptions"), f"{where}.seLinuxOptions")
    if _type(selinux, f"{where}.seLinuxOptions") not in _SELINUX_TYPES:
        yield f"{where}.seLinuxOptions.type is not one for containers"
    for name in ("user", "role"):
        if selinux.get(name):
            yield f"{where}.seLinuxOptions.{name} must not be set"
    windows = validation.struct(context.get("windowsOptions"), f"{where}.windowsOptions")
    if windows.get("hostProcess"):
        yield f"{where}.windowsOptions.hostProcess must not be true"


def _type(value: Any, where: str) -> str:
    return validation.text(validation.struct(value, where).get("type"), f"{where}.type")


def _restricted(container: Object, spec: Object, path: str) -> Iterator[str]:
    where = f"{path}.securityContext"
    context = validation.struct(container.get("securityContext"), where)
    pod = validation.struct(spec.get("securityContext"), "securityContext")
    if spec.get("hostUsers") is not False:
        yield from _root(context, pod, where)
    if validation.struct(spec.get("os"), "os").get("name") != "windows":
        yield from _of_linux(context, pod, where)


def _root(context: Object, pod: Object, where: str, *, is_pod: bool = False) -> Iterator[str]:
    """Yield what lets ``context`` run as root; that of a pod may leave it to its containers."""
    said = context.get("runAsNonRoot", pod.get("runAsNonRoot"))
    if said is not True and not (is_pod and said is None):
        yield f"{where}.runAsNonRoot must be true"
    if context.get("runAsUser", pod.get("runAsUser")) == 0:
        yield f"{where}.runAsUser must not be 0"


def _of_linux(context: Object, pod: Object, where: str) -> Iterator[str]:
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{where}.allowPrivilegeEscalation must be false"
    if not _type(context.get("seccompProfile") or pod.get("seccompProfile"), where):
        yield f"{where}.seccompProfile.type must be RuntimeDefault or Localhost"
    capabilities = validation.struct(context.get("capabilities"), f"{where}.capabilities")
    if "ALL" not in validation.items(capabilities.get("drop"), f"{where}.capabilities.drop"):
        yield f"{where}.capabilities.drop must have ALL"
    added = validation.items(capabilities.get("add"), f"{where}.capabilities.add")
    if any(name != "NET_BIND_SERVICE" for name in added):
        yield f"{where}.capabilities.add must have nothing but NET_BIND_SERVICE"


def _restricted_volumes(spec: Object) -> Iterator[str]:
    for index, volume in enumerate(validation.structs(spec.get("volumes"), "volumes")):
        for source in volume.keys() - RESTRICTED_VOLUMES - {"name"}:
            yield f"volumes[{index}].{source} is not possible in restricted namespaces"
