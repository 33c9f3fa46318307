"""Users of an API server, what they may do, and what they are told."""

from sandbox.kubectl import Kubectl, KubectlError


def rights(*rules: dict[str, list[str]], user: str) -> list[dict[str, object]]:
    metadata = {"name": f"test-{user}"}
    group = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": metadata,
            "rules": list(rules),
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": f"test-{user}"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        },
    ]


def refusal(admin: Kubectl, *arguments: str, stdin: str | None = None) -> str:
    """Return why this is refused, or an empty string; nothing changes."""
    try:
        admin.run(*arguments, "--dry-run=server", stdin=stdin)
    except KubectlError as error:
        return str(error)
    return ""
