"""Which images there are, and how to have them."""

import functools
from collections.abc import Callable, Iterable
from typing import Final, Literal

from sandbox.images import buildah, cache, pause, product, workload
from sandbox.images.cache import Image

Which = Literal["pause", "workload", "product"]
_RECIPES: Final[dict[Which, Callable[[], cache.Recipe]]] = {
    "pause": pause.recipe,
    "workload": workload.recipe,
    "product": product.recipe,
}


@functools.cache
def recipe(which: Which) -> cache.Recipe:
    """Return how ``which`` is made, from the code as it was when first asked in this process."""
    return _RECIPES[which]()


def product_name() -> str:
    """Return the full name of the product image; builds nothing."""
    return recipe("product").name


def workload_name() -> str:
    """Return the full name of the workload image; builds nothing."""
    return recipe("workload").name


def ensure(which: Iterable[Which] = tuple(_RECIPES)) -> tuple[Image, ...]:
    """Return the images ``which``, after building those that are not in the cache.

    Raises:
        MissingError: a program that building needs is not there.
        ProgramError: a build ended badly.
    """
    recipes = [recipe(each) for each in which]
    images = tuple(one.image() for one in recipes)
    if not all(image.archive.exists() for image in images):
        with cache.locked(cache.root()):
            buildah.tidy()
            for one, image in zip(recipes, images, strict=True):
                cache.built(image.archive.parent, one.build)
    return images
