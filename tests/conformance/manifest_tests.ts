/**
 * Applies `deploy/kubernetes` to the API machinery with strict field checking, as `kubectl apply
 * --validate=strict` does. The docs have no manifests of their own.
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { type ApiMachinery, startApiMachinery } from "../support/stages/api_machinery.ts";
import { MANIFESTS, readManifest } from "../support/docs/deploy_files.ts";
import type { RawObject } from "./server.ts";

/** Paths of the collections of each kind. */
const COLLECTIONS: Readonly<Record<string, (namespace: string) => string>> = {
  ServiceAccount: (namespace) => `/api/v1/namespaces/${namespace}/serviceaccounts`,
  DaemonSet: (namespace) => `/apis/apps/v1/namespaces/${namespace}/daemonsets`,
  ClusterRole: () => "/apis/rbac.authorization.k8s.io/v1/clusterroles",
  ClusterRoleBinding: () => "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
  Role: (namespace) => `/apis/rbac.authorization.k8s.io/v1/namespaces/${namespace}/roles`,
  RoleBinding: (namespace) =>
    `/apis/rbac.authorization.k8s.io/v1/namespaces/${namespace}/rolebindings`,
};

/** Defines the tests on the built API machinery. */
export function defineManifestTests(program: string): void {
  Deno.test("an API server with strict field checking accepts deploy/kubernetes", async (t) => {
    await using server = await startApiMachinery({ program });
    for (const path of MANIFESTS) {
      for (const object of await readManifest(path)) {
        const step = `${path}: ${object.kind} ${object.metadata.name}`;
        await t.step(
          step,
          async () => assertEquals(await createStrictly(server, object), "created"),
        );
      }
    }
  });

  Deno.test("an API server with strict field checking refuses a planted field", async () => {
    await using server = await startApiMachinery({ program });
    const [object] = await readManifest("kubernetes/kubeadm.yaml");
    const text = JSON.stringify(object).replace('"hostNetwork"', '"hostNetworks"');
    const answer = await createStrictly(server, JSON.parse(text));
    assertStringIncludes(answer, 'unknown field "spec.template.spec.hostNetworks"');
  });
}

/** Creates an object, checked strictly and not kept. Resolves to `created`, or to the server's words. */
export async function createStrictly(server: ApiMachinery, object: RawObject): Promise<string> {
  const collection = COLLECTIONS[object.kind];
  if (collection === undefined) return `the test knows no ${object.kind}`;
  const path = collection(object.metadata.namespace ?? "default");
  // Nothing is kept: two of the manifests are one DaemonSet in two forms.
  const query = "?fieldValidation=Strict&dryRun=All";
  const { status, body } = await server.admin.post(path + query, object);
  return status === 201 ? "created" : `${status} ${JSON.parse(body).message}`;
}
