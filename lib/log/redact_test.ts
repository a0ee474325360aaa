import { assert, assertEquals } from "@std/assert";
import { isSecretName, redactText } from "./redact.ts";

Deno.test("redactText() removes text that looks like a secret", () => {
  const cases: readonly [text: string, redacted: string][] = [
    ["Authorization: Bearer abc.def-123", "Authorization: Bearer [redacted]"],
    ["basic dXNlcjpwYXNz", "basic [redacted]"],
    ["got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2ln", "got [redacted]"],
    ["https://admin:hunter2@10.0.0.1:6443/api", "https://[redacted]@10.0.0.1:6443/api"],
    ["-----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY----- x", "[redacted] x"],
    ["-----BEGIN PRIVATE KEY-----\ncut off", "[redacted]"],
  ];
  for (const [text, redacted] of cases) assertEquals(redactText(text), redacted);
});

Deno.test("redactText() keeps text that an operator needs", () => {
  for (
    const text of [
      "https://10.0.0.1:6443/api?x=a@b",
      "ns/name:port",
      "fd00::1",
      "basic auth failed: 401",
      "-----BEGIN CERTIFICATE-----",
    ]
  ) {
    assertEquals(redactText(text), text);
  }
});

Deno.test("isSecretName() knows secrets from the files that hold them", () => {
  for (const name of ["token", "bearerToken", "Authorization", "client-key-data", "password"]) {
    assert(isSecretName(name.replaceAll("-", "")), name);
  }
  for (const name of ["tokenFile", "key", "servicePort", "path"]) assert(!isSecretName(name), name);
});
