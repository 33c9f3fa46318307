"""The decisions, pure, one module a kind: what is refused, what is changed, what is warned of.

Belongs here: functions over plain JSON and our own kinds. No I/O, no clock, no cluster, no Flask:
what a rule looks up it asks of the ``admission.Lookup`` that it is given.
"""
