// Verifies deliveries of the hub (docs/receivers/README.md). Needs nothing but Node 18.
//
// `signatures` are the values of all X-Webhook-Signature header lines, one by one:
// `request.headersDistinct["x-webhook-signature"]`. `request.headers` joins them with commas, and a
// signature holds a comma itself.

import { createHmac, timingSafeEqual } from "node:crypto";

const TOLERANCE_S = 300;

/** Whether `body`, a Buffer of the bytes as they came, was signed with one of `secrets` a moment ago. */
export function verify(secrets, timestamp, signatures, body, now = Date.now() / 1000) {
  if (!/^[0-9]+$/.test(timestamp)) return false;
  if (Math.abs(now - Number(timestamp)) > TOLERANCE_S) return false;
  let good = false;
  for (const secret of secrets) {
    const hmac = createHmac("sha256", secret).update(`v1:${timestamp}.`).update(body);
    const expected = Buffer.from(`v1,sha256=${hmac.digest("hex")}`);
    for (const signature of signatures) {
      const given = Buffer.from(signature);
      if (given.length === expected.length && timingSafeEqual(given, expected)) good = true;
    }
  }
  return good;
}

// For the hub's own tests: a request a line in, a verdict a line out.
if (process.argv[2] === "--test") {
  const { createInterface } = await import("node:readline");
  for await (const line of createInterface({ input: process.stdin })) {
    const r = JSON.parse(line);
    const body = Buffer.from(r.body_base64, "base64");
    console.log(verify(r.secrets, r.timestamp, r.signatures, body) ? "ok" : "bad");
  }
}
