"""How fast, how cheap and how close to the limit: ``make bench``, ``make bench-check``.

Arms of one run are compared with each other, on two real clusters that ``sandbox`` starts. It may
import ``sandbox``, ``kube`` and ``apis``, ``shadowpods`` also what tests install; nothing imports
it. ``docs/performance.md`` says what it found, ``docs/measuring.md`` how to repeat it.
"""
