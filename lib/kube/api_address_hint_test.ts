import { assertEquals, assertStringIncludes } from "@std/assert";
import { type ApiAddressFacts, apiAddressHint } from "./api_source.ts";

const FACTS: ApiAddressFacts = {
  auth: { server: "https://10.96.0.1", source: "in-cluster account", method: "token file" },
  reached: false,
  failing: true,
  kubernetesService: undefined,
};
const KUBERNETES = {
  metadata: { name: "kubernetes", namespace: "default" },
  spec: { clusterIP: "10.96.0.1", clusterIPs: ["10.96.0.1", "fd00::1"] },
};

Deno.test("apiAddressHint() suspects the address in KUBERNETES_SERVICE_HOST while nothing answers", () => {
  const hint = apiAddressHint(FACTS)!;
  assertStringIncludes(hint, "10.96.0.1:443 of KUBERNETES_SERVICE_HOST does not answer");
  assertStringIncludes(hint, "--master");
});

Deno.test("apiAddressHint() knows the ClusterIP of Service default/kubernetes, in both families", () => {
  for (const server of ["https://10.96.0.1", "https://[fd00::1]"]) {
    const hint = apiAddressHint({
      ...FACTS,
      auth: { ...FACTS.auth, server, source: "kubeconfig" },
      reached: true,
      failing: false,
      kubernetesService: KUBERNETES,
    })!;
    assertStringIncludes(hint, "is the ClusterIP of Service default/kubernetes");
  }
});

for (
  const [name, facts] of [
    ["an address that answered once", { reached: true }],
    ["an address that was not tried yet", { failing: false }],
    ["an address of a kubeconfig", { auth: { ...FACTS.auth, source: "kubeconfig" } }],
    ["another address than the ClusterIP", {
      reached: true,
      failing: false,
      auth: { ...FACTS.auth, server: "https://192.0.2.1:6443" },
      kubernetesService: KUBERNETES,
    }],
  ] as const satisfies readonly (readonly [string, Partial<ApiAddressFacts>])[]
) {
  Deno.test(`apiAddressHint() reports nothing about ${name}`, () => {
    assertEquals(apiAddressHint({ ...FACTS, ...facts }), undefined);
  });
}
