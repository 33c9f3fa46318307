"""What the Node, the ShadowPods and the pods' statuses have to look like.

Pure: no I/O, no clock, no loop; objects go in, objects come out.
"""
