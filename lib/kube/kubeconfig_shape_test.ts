import { assertEquals } from "@std/assert";
import { kubeconfigShapeProblem } from "./kubeconfig_shape.ts";

const RIGHT: readonly unknown[] = [
  null,
  {},
  { users: null, clusters: [], contexts: [{}], preferences: 5 },
  { users: [{ name: "a", user: { token: "t", exec: 5 } }, { name: "b", user: null }] },
];

Deno.test("kubeconfigShapeProblem() finds nothing where fields are right, missing or of others", () => {
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
