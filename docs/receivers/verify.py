"""Verifies deliveries of the hub (docs/receivers/README.md). Needs nothing but Python 3.

`signatures` are the values of all X-Webhook-Signature header lines, one by one: a signature holds a
comma itself, so a framework that joins repeated lines with commas (WSGI does) loses the second
one's beginning. Split such a text before each `v1,`.
"""

import hashlib
import hmac
import time

TOLERANCE_S = 300


def verify(secrets, timestamp, signatures, body, now=None):
    """Whether `body`, the bytes as they came, was signed with one of `secrets` a moment ago."""
    now = time.time() if now is None else now
    if not timestamp.isascii() or not timestamp.isdigit():
        return False
    if abs(now - int(timestamp)) > TOLERANCE_S:
        return False
    signed = b"v1:" + timestamp.encode() + b"." + body
    good = False
    for secret in secrets:
        digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
        for signature in signatures:
            good |= hmac.compare_digest(f"v1,sha256={digest}".encode(), signature.encode())
    return good


if __name__ == "__main__":  # For the hub's own tests: a request a line in, a verdict a line out.
    import base64
    import json
    import sys

    for line in sys.stdin:
        r = json.loads(line)
        body = base64.b64decode(r["body_base64"])
        print("ok" if verify(r["secrets"], r["timestamp"], r["signatures"], body) else "bad")
