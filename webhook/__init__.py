"""Admission: every webhook's answer, from a cache, without a write.

Belongs here: what answers an AdmissionReview (``rules``, pure), what reads it off the wire
(``admission``, pure) and what serves it (``app``, ``reader``, ``serving``). The only package that
imports Flask and gunicorn; it may import ``certs``, ``kube`` and ``apis``, never another process.
"""
