/**
 * Tests that NetworkPolicies of an API server become a plan, on the fake and on the real API
 * machinery.
 */
import { assertEquals } from "@std/assert";
import { type KindSpec, type KubeObject, objectKey } from "../../lib/api/kind.ts";
import { CLUSTER_NETWORK_POLICY } from "../../lib/api/kinds/cluster_network_policy.ts";
import { NAMESPACE } from "../../lib/api/kinds/namespace.ts";
import { NETWORK_POLICY } from "../../lib/api/kinds/network_policy.ts";
import { POD } from "../../lib/api/kinds/pod.ts";
import { policySelection } from "../../lib/app/policy/policy_settings.ts";
import { ApiSource } from "../../lib/kube/api_source.ts";
import { changeHandler } from "../../lib/kube/informer.ts";
import { InformerSet } from "../../lib/kube/informer_set.ts";
import { parsePort } from "../../lib/net/port.ts";
import { systemClock } from "../../lib/os/clock.ts";
import { judgeConnection, viewPlan } from "../../lib/policy/judge_connection.ts";
import type { PodKey, PolicyKey } from "../../lib/policy/policy_plan.ts";
import { PolicyPlanner } from "../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../lib/policy/policy_state.ts";
import { IPV4_PLAN } from "../support/builders/policy_objects.ts";
import { eventually } from "../support/eventually.ts";
import { MemoryLogger } from "../support/fakes/memory_logger.ts";
import { tokenAuth } from "./machinery_auth.ts";
import type { ConformanceServer, RawObject, StartConformanceServer } from "./server.ts";

/** Defines the test for one kind of server. */
export function definePolicyTests(name: string, start: StartConformanceServer): void {
  for (const streamingLists of [true, false]) {
    const way = streamingLists ? "streaming lists" : "lists in pages";
    Deno.test(`NetworkPolicies of an API server are planned by ${way} (${name})`, async () => {
      await using server = await start();
      await server.create(namespace("x", { team: "a" }));
      await server.create(pod("x/web", "10.1.0.1", { app: "web" }));
      await server.create(pod("x/db", "10.1.0.2", { app: "db" }));
      const policy = await server.create(POLICY);
      await using follower = new PolicyFollower(server, { streamingLists });
      await follower.answers("x/web reaches x/db", true);
      await follower.answers("x/db reaches x/web", false);
      await server.create(pod("x/new", "10.1.0.3", { app: "client" }));
      await follower.answers("x/new reaches x/web", false);
      await server.update(pod("x/new", "10.1.0.3", { app: "db" }));
      await follower.answers("x/new reaches x/web", false);
      await server.update({
        ...policy,
        spec: { ...Object(policy.spec), ingress: [{ from: [{ namespaceSelector: SAME_TEAM }] }] },
      });
      await follower.answers("x/new reaches x/web", true);
      await server.update(namespace("x", { team: "b" }));
      await follower.answers("x/new reaches x/web", false);
      await server.delete(policy);
      await follower.answers("x/new reaches x/web", true);
    });
  }
}

/** Defines the test for servers that take definitions of kinds. */
export function defineClusterPolicyTests(name: string, start: StartConformanceServer): void {
  Deno.test(`ClusterNetworkPolicies are planned while their definition is there (${name})`, async () => {
    await using server = await start();
    await server.create(namespace("x", { team: "a" }));
    await server.create(pod("x/web", "10.1.0.1", { app: "web" }));
    await server.create(pod("x/db", "10.1.0.2", { app: "db" }));
    const isDefined = async () => {
      try {
        await server.create(CLUSTER_POLICY);
        return true;
      } catch {
        return false;
      }
    };
    await using follower = new PolicyFollower(server, { streamingLists: true });
    await follower.answers("x/db reaches x/web", true);
    const definition = await server.create(DEFINITION);
    await eventually("the kind is served", isDefined);
    await follower.answers("x/db reaches x/web", false);
    await server.update(namespace("x", { team: "b" }));
    await follower.answers("x/db reaches x/web", true);
    await server.update(namespace("x", { team: "a" }));
    await follower.answers("x/db reaches x/web", false);
    await server.delete(definition);
    await follower.answers("x/db reaches x/web", true);
  });
}

/** Only what the server needs: the fields are the business of the project that owns the definition. */
const DEFINITION: RawObject = {
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: {
    name: "clusternetworkpolicies.policy.networking.k8s.io",
    annotations: { "api-approved.kubernetes.io": "unapproved, for a test" },
  },
  spec: {
    group: "policy.networking.k8s.io",
    scope: "Cluster",
    names: { kind: "ClusterNetworkPolicy", plural: "clusternetworkpolicies" },
    versions: [{
      ...{ name: "v1alpha2", served: true, storage: true },
      schema: {
        openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true },
      },
    }],
  },
};

const SAME_TEAM = { matchLabels: { team: "a" } };

const CLUSTER_POLICY: RawObject = {
  apiVersion: "policy.networking.k8s.io/v1alpha2",
  kind: "ClusterNetworkPolicy",
  metadata: { name: "admin" },
  spec: {
    ...{ tier: "Admin", priority: 0, subject: { namespaces: SAME_TEAM } },
    ingress: [{ action: "Deny", from: [{ namespaces: {} }] }],
  },
};

const POLICY: RawObject = {
  apiVersion: "networking.k8s.io/v1",
  kind: "NetworkPolicy",
  metadata: { name: "web", namespace: "x" },
  spec: {
    podSelector: { matchExpressions: [{ key: "app", operator: "In", values: ["web"] }] },
    policyTypes: ["Ingress"],
    ingress: [{
      from: [{ ipBlock: { cidr: "10.0.0.0/8", except: ["10.1.0.0/16"] } }],
      ports: [{ protocol: "TCP", port: 80, endPort: 90 }],
    }],
  },
};

function namespace(name: string, labels: Readonly<Record<string, string>>): RawObject {
  return { apiVersion: "v1", kind: "Namespace", metadata: { name, labels } };
}

function pod(key: string, podIP: string, labels: Readonly<Record<string, string>>): RawObject {
  const [namespace, name] = key.split("/") as [string, string];
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace, labels },
    spec: { nodeName: IPV4_PLAN.nodeName, containers: [{ name: "main", image: "main" }] },
    status: { phase: "Running", podIP, podIPs: [{ ip: podIP }] },
  };
}

/** Follows the objects of policies and plans from them. */
class PolicyFollower implements AsyncDisposable {
  readonly #state = new PolicyState();
  readonly #planner = new PolicyPlanner(this.#state, IPV4_PLAN);
  readonly #abort = new AbortController();
  readonly #running: Promise<void>;

  constructor(server: ConformanceServer, options: { readonly streamingLists: boolean }) {
    const informers = new InformerSet();
    const follow = <T extends KubeObject>(
      spec: KindSpec<T>,
      take: (key: string, object: T | undefined) => void,
    ) =>
      informers.subscribe(
        spec,
        policySelection(spec),
        changeHandler<T>((previous, current) => take(objectKey(current ?? previous!), current)),
      );
    follow(POD, (key, object) => this.#state.setPod(key as PodKey, object));
    follow(NAMESPACE, (key, object) => this.#state.setNamespace(key, object));
    follow(NETWORK_POLICY, (key, object) => this.#state.setPolicy(key as PolicyKey, object));
    follow(
      CLUSTER_NETWORK_POLICY,
      (key, object) => this.#state.setClusterPolicy(key as PolicyKey, object),
    );
    const logger = new MemoryLogger();
    const auth = tokenAuth(server);
    const edges = { clock: systemClock, logger, auth, random: Math.random };
    this.#running = new ApiSource(edges, { informers, ...options }).run(this.#abort.signal);
  }

  /** Waits until a question such as `x/a reaches x/b`, at TCP port 80, has the answer. */
  async answers(question: string, expected: boolean): Promise<void> {
    const [from, to] = question.split(" reaches ") as [string, string];
    await eventually(`${question}: ${expected}`, () => this.#reaches(from, to) === expected);
    assertEquals(this.#reaches(from, to), expected);
  }

  #reaches(from: string, to: string): boolean | undefined {
    const [source, destination] = [from, to].map((key) =>
      this.#state.pods.get(key as PodKey)?.addresses[0]
    );
    if (source === undefined || destination === undefined) return undefined;
    this.#planner.update();
    const { isAllowed } = judgeConnection(viewPlan(this.#planner.plan), {
      from: source,
      to: destination,
      transport: { protocol: "TCP", port: parsePort(80) },
    });
    return isAllowed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#abort.abort();
    await this.#running;
  }
}
