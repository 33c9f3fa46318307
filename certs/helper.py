"""Makes or judges one certificate and ends: ``python -m certs.helper`` reads one line of JSON.

``cryptography`` takes 8 MiB as long as a process lives; a virtual kubelet needs it for a moment
in months. Private keys go through pipes only.

Shape: {"node": str, "ips": [str]} is answered by {"csr": PEM, "key": PEM};
{"server": str} by {"certificate": PEM, "key": PEM};
{"certificate": PEM, "key": PEM, "now": ISO 8601} by {"renewal": ISO 8601, or null where the key is
another}, for a certificate that was issued just now.
"""

import datetime as dt
import json
import sys
from collections.abc import Mapping
from typing import Any

from certs import pki, policy, serving
from kube import clock


def answer(question: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the answer to one question.

    Raises:
        ValueError: an address or a certificate cannot be read.
    """
    if "node" in question:
        made = serving.request(question["node"], ips=question["ips"])
        return {"csr": made.csr.decode(), "key": made.key.decode()}
    if "server" in question:
        pair = serving.own(question["server"], now=clock.now())
        return {"certificate": pair.certificate.decode(), "key": pair.key.decode()}
    certificate, key = (question[name].encode() for name in ("certificate", "key"))
    if not pki.fits_key(certificate, key):
        return {"renewal": None}
    now = dt.datetime.fromisoformat(question["now"])
    return {"renewal": policy.renewal(certificate, now, now).isoformat()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(answer(json.loads(sys.stdin.readline()))))
