import { assertEquals, assertRejects } from "@std/assert";
import { parse } from "@std/yaml";
import { FakeApiServer } from "../../tests/support/fakes/fake_api_server.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { systemClock } from "../os/clock.ts";
import {
  clusterRoleYaml,
  describeAccess,
  type ResourceAccess,
  reviewAccess,
} from "./access_review.ts";
import { ApiError } from "./api_error.ts";
import { KubeClient } from "./client.ts";
import { openTransport } from "./api_transport.ts";
import { loadKubeAuth } from "./kubeconfig.ts";

const LIST_PODS: ResourceAccess = { verb: "list", group: "", plural: "pods" };
const WATCH_PODS: ResourceAccess = { ...LIST_PODS, verb: "watch" };
const LIST_NAMESPACES: ResourceAccess = { verb: "list", group: "", plural: "namespaces" };
const WATCH_NAMESPACES: ResourceAccess = { ...LIST_NAMESPACES, verb: "watch" };
const WATCH_POLICIES: ResourceAccess = {
  verb: "watch",
  group: "networking.k8s.io",
  plural: "networkpolicies",
};
const ALL = [LIST_PODS, WATCH_PODS, LIST_NAMESPACES, WATCH_NAMESPACES, WATCH_POLICIES];

async function withClient(use: (fake: FakeApiServer, client: KubeClient) => Promise<void>) {
  await using fake = await FakeApiServer.start({ scheme: "http" });
  const logger = new MemoryLogger();
  const options = { master: fake.url, env: () => undefined };
  const auth = await loadKubeAuth({ clock: systemClock, logger }, options);
  await using transport = openTransport(systemClock, auth);
  await use(fake, new KubeClient({ clock: systemClock, auth, transport }));
}

Deno.test("reviewAccess() returns the denied rights, in the order of the requests", () =>
  withClient(async (fake, client) => {
    const { signal } = new AbortController();
    assertEquals(await reviewAccess(client, ALL, signal), []);
    fake.deniedAccess.add("watch /apis/networking.k8s.io/v1/networkpolicies");
    fake.deniedAccess.add("list /api/v1/pods");
    assertEquals(await reviewAccess(client, ALL, signal), [LIST_PODS, WATCH_POLICIES]);
    fake.setMissing("/api/v1/pods", 403);
    const denied = await reviewAccess(client, ALL, signal);
    assertEquals(denied.map(describeAccess), [
      "list pods",
      "watch pods",
      "watch networkpolicies.networking.k8s.io",
    ]);
  }));

Deno.test("reviewAccess() throws if the API server answers no reviews", () =>
  withClient(async (fake, client) => {
    fake.setMissing("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 404);
    const { signal } = new AbortController();
    const error = await assertRejects(() => reviewAccess(client, ALL, signal), ApiError);
    assertEquals(error.isNotFound(), true);
  }));

Deno.test("clusterRoleYaml() grants exactly the given rights, in one line of YAML", () => {
  const text = clusterRoleYaml("kube-relay-policy", ALL);
  assertEquals(/["\n]/.test(text), false, text);
  assertEquals(parse(text), {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "ClusterRole",
    metadata: { name: "kube-relay-policy" },
    rules: [
      { apiGroups: [""], resources: ["pods", "namespaces"], verbs: ["list", "watch"] },
      { apiGroups: ["networking.k8s.io"], resources: ["networkpolicies"], verbs: ["watch"] },
    ],
  });
});
