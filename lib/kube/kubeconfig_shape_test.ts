import { assertEquals, assertThrows } from "@std/assert";
import { KubeAuthError } from "./kube_identity.ts";
import { kubeconfigShapeProblem, serverUrl } from "./kubeconfig_shape.ts";

const RIGHT: readonly unknown[] = [
  null,
  {},
  { users: null, clusters: [], contexts: [{}], preferences: 5 },
  { users: [{ name: "a", user: { token: "t", exec: 5 } }, { name: "b", user: null }] },
];

Deno.test("kubeconfigShapeProblem() finds nothing if fields are right, missing or unknown", () => {
  for (const raw of RIGHT) assertEquals(kubeconfigShapeProblem(raw), undefined);
});

const WRONG: readonly [raw: unknown, problem: string][] = [
  [5, "it has to be fields"],
  ["text", "it has to be fields"],
  [{ "current-context": 5 }, "current-context has to be text"],
  [{ contexts: { a: 1 } }, "contexts has to be a list"],
  [{ contexts: [null] }, "contexts[0] has to be fields"],
  [{ contexts: [{ name: { toString: true } }] }, "contexts[0].name has to be text"],
  [
    { clusters: [{}, { cluster: { "certificate-authority": [] } }] },
    "clusters[1].cluster.certificate-authority has to be text",
  ],
  [
    { clusters: [{ cluster: { "insecure-skip-tls-verify": "true" } }] },
    "clusters[0].cluster.insecure-skip-tls-verify has to be true or false",
  ],
  [{ users: [{ user: { token: 12345 } }] }, "users[0].user.token has to be text"],
  [{ users: [{ user: "a" }] }, "users[0].user has to be fields"],
];

for (const [raw, problem] of WRONG) {
  Deno.test(`kubeconfigShapeProblem() says: ${problem} (${JSON.stringify(raw)})`, () =>
    assertEquals(kubeconfigShapeProblem(raw), problem));
}

const CASES: readonly (readonly [text: string, plain: string, tls?: string])[] = [
  ["https://192.0.2.1:6443", "https://192.0.2.1:6443"],
  ["http://127.0.0.1:8001/proxy", "http://127.0.0.1:8001/proxy"],
  ["192.0.2.1:6443", "http://192.0.2.1:6443", "https://192.0.2.1:6443"],
  ["[2001:db8::1]:6443", "http://[2001:db8::1]:6443", "https://[2001:db8::1]:6443"],
  ["api.example", "http://api.example", "https://api.example"],
  ["api.example:8443/", "http://api.example:8443", "https://api.example:8443"],
];

for (const [text, plain, tls = plain] of CASES) {
  Deno.test(`serverUrl() of '${text}' is ${plain}, and ${tls} if TLS is meant`, () => {
    assertEquals(serverUrl("--master", text, { usesTls: false }), plain);
    assertEquals(serverUrl("--master", text, { usesTls: true }), tls);
  });
}

const REFUSED = ["api.example/path", "ftp://api.example", "https://", "a b", "192.0.2.1:70000", ""];

for (const text of REFUSED) {
  Deno.test(`serverUrl() refuses '${text}', and names the field`, () => {
    const error = assertThrows(() => serverUrl("--master", text, { usesTls: true }), KubeAuthError);
    assertEquals(
      error.message,
      `Cannot use --master: '${text}' has to be a URL such as https://192.0.2.1:6443`,
    );
  });
}
