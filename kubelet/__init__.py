"""One virtual node: its Node, its pods (as ShadowPods on the provider) and the kubelet API.

Belongs here: what a kubelet does for a node, done for a node that is another cluster. Objects
other than pods are the reflector's. Which modules are pure says pyproject.toml.
"""
