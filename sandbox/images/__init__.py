"""Images without a registry: each is made from what is here and kept by the hash of that.

Belongs here: how the images of the sandbox are named, built and cached as docker archives. Starting
containers from them, and loading them into a cluster, does not.
"""

from sandbox.images.cache import Image
from sandbox.images.catalogue import Which, ensure, product_name, workload_name
from sandbox.images.pause import PAUSE

__all__ = ["PAUSE", "Image", "Which", "ensure", "product_name", "workload_name"]
