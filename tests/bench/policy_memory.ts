// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Memory of pods and of the plan of policies: 10,000 pods with ten labels each, and 1,000 policies.
 * Needs `--v8-flags=--expose-gc`.
 *
 * @module
 */
import process from "node:process";
import { objectKey } from "../../lib/api/kind.ts";
import { NETWORK_POLICY } from "../../lib/api/kinds/network_policy.ts";
import { POD } from "../../lib/api/kinds/pod.ts";
import { Informer } from "../../lib/kube/informer.ts";
import { slimObject } from "../../lib/kube/slim.ts";
import { StringTable } from "../../lib/kube/string_table.ts";
import { IP_FAMILIES } from "../../lib/net/ip_address.ts";
import type { PodKey, PolicyKey } from "../../lib/policy/policy_plan.ts";
import { PolicyPlanner } from "../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../lib/policy/policy_state.ts";

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

const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;
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
const afterPods = heap();
console.log(`slim pods, in the informer: ${megabytes(afterPods - started)}`);

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
let from = process.cpuUsage().user / 1_000;
for (const pod of pods) state.setPod(objectKey(pod) as PodKey, pod);
console.log(`state of pods: ${since()}, ${megabytes(heap() - afterPods)}`);
from = process.cpuUsage().user / 1_000;
for (let index = 0; index < POLICY_COUNT; index++) {
  const policy = slimObject(NETWORK_POLICY, JSON.parse(policyText(index)), { strings, onProblem })!;
  state.setPolicy(objectKey(policy) as PolicyKey, policy);
}
for (const planner of planners) planner.update();
console.log(`with ${POLICY_COUNT} policies: ${since()}, ${megabytes(heap() - afterPods)}`);
console.log(`all: ${megabytes(heap() - started)}`);
const [plan] = planners.map((planner) => planner.plan);
const members = [...plan!.peers.values()].reduce((sum, set) => sum + set.members.size, 0);
console.log(
  `plan of IPv4: ${plan!.pods.size} pods, ${plan!.lists.size} lists, ` +
    `${plan!.peers.size} sets with ${members} members`,
);
from = process.cpuUsage().user / 1_000;
const EVENTS = 1_000;
for (let index = 0; index < EVENTS; index++) {
  const pod = pods[index]!;
  state.setPod(objectKey(pod) as PodKey, undefined);
  for (const planner of planners) planner.update();
  state.setPod(objectKey(pod) as PodKey, pod);
  for (const planner of planners) planner.update();
}
console.log(`${2 * EVENTS} events of pods: ${since()}`);

function since(): string {
  return `${(process.cpuUsage().user / 1_000 - from).toFixed(1)} ms of CPU`;
}
