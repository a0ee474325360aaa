// deno-lint-ignore-file no-console -- its output is what it is for
/**
 * A program that keeps 10,000 pods with ten labels each, and plans 1,000 policies. Prints the memory
 * that this took. A process of its own, since garbage of others would count.
 */
import { objectKey } from "../../../lib/api/kind.ts";
import { NETWORK_POLICY } from "../../../lib/api/kinds/network_policy.ts";
import { POD } from "../../../lib/api/kinds/pod.ts";
import { Informer } from "../../../lib/kube/informer.ts";
import { slimObject } from "../../../lib/kube/slim.ts";
import { StringTable } from "../../../lib/kube/string_table.ts";
import { IP_FAMILIES } from "../../../lib/net/ip_address.ts";
import type { PodKey, PolicyKey } from "../../../lib/policy/policy_plan.ts";
import { PolicyPlanner } from "../../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../../lib/policy/policy_state.ts";

const POD_COUNT = 10_000;
const POLICY_COUNT = 1_000;
/** Pods of one workload have the same labels. */
const REPLICAS = 10;
const NAMESPACE_COUNT = 100;

/** A pod as an API server sends it, as text, as far as its size matters. */
function podText(index: number): string {
  const workload = Math.floor(index / REPLICAS);
  const hash = (workload * 2654435761 >>> 0).toString(36);
  const ip = `10.${index >> 16 & 255}.${index >> 8 & 255}.${index & 255}`;
  return JSON.stringify({
    metadata: {
      name: `service-${workload}-${hash}-${(index * 40503 >>> 0).toString(36)}`,
      namespace: `team-${workload % NAMESPACE_COUNT}`,
      uid: crypto.randomUUID(),
      resourceVersion: String(1_000_000 + index),
      creationTimestamp: `2026-01-01T00:${String(workload % 60).padStart(2, "0")}:00Z`,
      labels: {
        "app.kubernetes.io/name": `service-${workload}`,
        "app.kubernetes.io/instance": `service-${workload}-prod`,
        "app.kubernetes.io/version": `1.${workload % 20}.0`,
        "app.kubernetes.io/component": ["web", "api", "worker"][workload % 3],
        "app.kubernetes.io/part-of": `product-${workload % 50}`,
        "app.kubernetes.io/managed-by": "Helm",
        "helm.sh/chart": `service-${workload % 20}.4.2`,
        "pod-template-hash": hash,
        "team": `team-${workload % NAMESPACE_COUNT}`,
        "tier": ["front", "back"][workload % 2],
      },
      managedFields: [{ manager: "kubelet" }],
    },
    spec: {
      nodeName: `node-${index % 300}.example.org`,
      containers: [
        {
          name: "main",
          image: "registry.example.org/service:1",
          ports: [
            { name: "http", containerPort: 8080, protocol: "TCP" },
            { name: "metrics", containerPort: 9090, protocol: "TCP" },
          ],
        },
        { name: "log", image: "registry.example.org/log:1" },
      ],
    },
    status: { phase: "Running", podIP: ip, podIPs: [{ ip }] },
  });
}

function policyText(index: number): string {
  return JSON.stringify({
    metadata: { name: `policy-${index}`, namespace: `team-${index % NAMESPACE_COUNT}` },
    spec: {
      podSelector: { matchLabels: { "app.kubernetes.io/name": `service-${index}` } },
      policyTypes: ["Ingress", "Egress"],
      ingress: [{
        from: [
          { podSelector: { matchLabels: { tier: "front" } } },
          {
            namespaceSelector: {},
            podSelector: { matchLabels: { "app.kubernetes.io/part-of": `product-${index % 50}` } },
          },
        ],
        ports: [{ port: "http" }],
      }],
      egress: [{ to: [{ ipBlock: { cidr: "0.0.0.0/0", except: ["169.254.169.254/32"] } }] }],
    },
  });
}

function heap(): number {
  const { gc } = globalThis as unknown as { readonly gc: () => void };
  gc();
  gc();
  return Deno.memoryUsage().heapUsed;
}

/** The figures that it prints, as JSON. */
export interface MemoryFigures {
  /** Megabytes of the pods, as the informer keeps them. */
  readonly podMb: number;
  /** Megabytes of pods, policies and plans of both families. */
  readonly allMb: number;
}

/** Runs the program. */
export async function measureMemory(): Promise<MemoryFigures> {
  const args = ["run", "--quiet", "--no-prompt", "--v8-flags=--expose-gc", import.meta.url];
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), { args }).output();
  const text = new TextDecoder();
  if (code !== 0) throw new Error(`Cannot measure memory: ${text.decode(stderr)}`);
  return JSON.parse(text.decode(stdout));
}

if (import.meta.main) console.log(JSON.stringify(measure()));

function measure(): MemoryFigures {
  const strings = new StringTable();
  const onProblem = (problem: unknown) => {
    throw new Error(`Unexpected problem: ${JSON.stringify(problem)}`);
  };
  const started = heap();
  const pods = Array.from(
    { length: POD_COUNT },
    (_, index) => slimObject(POD, JSON.parse(podText(index)), { strings, onProblem })!,
  );
  const informer = new Informer<typeof pods[number]>();
  for (const pod of pods) informer.upsert(pod);
  const podMb = (heap() - started) / 1e6;
  const state = new PolicyState();
  const planners = IP_FAMILIES.map((family) =>
    new PolicyPlanner(state, {
      family,
      nodeName: "node-7.example.org",
      deny: { action: "reject" },
      closedRanges: [],
      podLinks: [],
    })
  );
  for (const pod of pods) state.setPod(objectKey(pod) as PodKey, pod);
  for (let index = 0; index < POLICY_COUNT; index++) {
    const object = JSON.parse(policyText(index));
    const policy = slimObject(NETWORK_POLICY, object, { strings, onProblem })!;
    state.setPolicy(objectKey(policy) as PolicyKey, policy);
  }
  for (const planner of planners) planner.update();
  const allMb = (heap() - started) / 1e6;
  // The plans have to live until the end.
  if (planners.some(({ plan }) => plan.family === "IPv4" && plan.pods.size === 0)) {
    throw new Error("Nothing was planned");
  }
  return { podMb, allMb };
}
