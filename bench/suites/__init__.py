"""One module a suite: what its arms do in a block, and which figures come of it."""
