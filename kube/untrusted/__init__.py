"""All that an API server says comes in here.

It arrives as ``UntrustedBytes`` (``kube.wire``), which only ``decode`` opens: as it is what the own
server says; of a peer what fits the table of ``schemas``. No other code meets a list where a text
belongs, or a text without an end.
"""
