/** NetworkPolicies with fields of a wrong type: from an API server, and from a folder of manifests. */
import { assert, assertEquals } from "@std/assert";
import { objectKey } from "../../lib/api/kind.ts";
import { NETWORK_POLICY } from "../../lib/api/kinds/network_policy.ts";
import type { ObjectProblem } from "../../lib/api/problem.ts";
import { InformerSet } from "../../lib/kube/informer_set.ts";
import { FileManifestSource } from "../../lib/kube/manifests/manifests.ts";
import { slimObject } from "../../lib/kube/slim.ts";
import { StringTable } from "../../lib/kube/string_table.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { parsePort } from "../../lib/net/port.ts";
import { judgeConnection, viewCluster } from "../../lib/policy/judge_connection.ts";
import type { PolicyKey } from "../../lib/policy/policy_plan.ts";
import { PolicyState } from "../../lib/policy/policy_state.ts";
import { setPod, setPolicy } from "../support/builders/policy_objects.ts";
import { FakeClock } from "../support/fakes/fake_clock.ts";
import { FakeManifestFiles } from "../support/fakes/fake_manifest_files.ts";
import { MemoryLogger } from "../support/fakes/memory_logger.ts";
import { letPass, SEEN_MS, settledUntil } from "../support/stages/manifest_harness.ts";

const PODS = { "x/a": "10.1.0.1", "x/b": "10.1.0.2", "y/a": "10.2.0.1" };
const OUTSIDE = "198.51.100.1";

function stateWithPods(): PolicyState {
  const state = new PolicyState();
  for (const [key, address] of Object.entries(PODS)) {
    setPod(state, key, { address, labels: { app: key.slice(2) } });
  }
  return state;
}

/** The pods that an address outside reaches on port 80, or with "out" those that reach it. */
function reachable(state: PolicyState, way: "in" | "out"): string {
  const view = viewCluster(state, "IPv4");
  const [outside, port] = [parseIpAddress(OUTSIDE), parsePort(80)];
  return Object.entries(PODS).filter(([, text]) => {
    const pod = parseIpAddress(text);
    const ends = way === "in" ? { from: outside, to: pod } : { from: pod, to: outside };
    const transport = { protocol: "TCP", port } as const;
    return judgeConnection(view, { ...ends, transport }).isAllowed;
  }).map(([key]) => key).join(" ");
}

const A = { podSelector: { matchLabels: { app: "a" } } };
const ALL = "x/a x/b y/a";

interface UnreadableCase {
  readonly spec: unknown;
  /** The pods that are reached, and those that reach others. */
  readonly in: string;
  readonly out: string;
  /** The first problem. */
  readonly problem: string;
}

/** Fields of wrong types, which the data of an API server and manifests may have. */
const CASES: readonly UnreadableCase[] = [
  { spec: "x", in: "y/a", out: "y/a", problem: 'spec "x"' },
  {
    spec: { podSelector: "app=a", ingress: [{}] },
    in: "y/a",
    out: ALL,
    problem: 'spec.podSelector "app=a"',
  },
  {
    spec: { podSelector: { matchLabels: { app: 5 } }, ingress: [{}] },
    in: "y/a",
    out: ALL,
    problem: "spec.podSelector.matchLabels.app 5",
  },
  {
    spec: { ...A, policyTypes: "Egress", egress: [{}] },
    in: "x/b y/a",
    out: "x/b y/a",
    problem: 'spec.policyTypes "Egress"',
  },
  {
    spec: { ...A, policyTypes: ["Egress", 5], egress: [{}] },
    in: "x/b y/a",
    out: "x/b y/a",
    problem: "spec.policyTypes[1] 5",
  },
  {
    spec: { ...A, policyTypes: ["Ingress"], ingress: "all" },
    in: "x/b y/a",
    out: ALL,
    problem: 'spec.ingress "all"',
  },
  {
    spec: { ...A, egress: { to: [] } },
    in: "x/b y/a",
    out: "x/b y/a",
    problem: 'spec.egress {"to":[]}',
  },
  { spec: { ...A, ingress: ["all", {}] }, in: ALL, out: ALL, problem: 'spec.ingress[0] "all"' },
  {
    spec: { ...A, ingress: [{ from: "all" }] },
    in: "x/b y/a",
    out: ALL,
    problem: 'spec.ingress[0].from "all"',
  },
  {
    spec: { ...A, ingress: [{ from: ["all"] }] },
    in: "x/b y/a",
    out: ALL,
    problem: 'spec.ingress[0].from[0] "all"',
  },
  {
    spec: { ...A, ingress: [{ from: [null, { ipBlock: { cidr: "0.0.0.0/0" } }] }] },
    in: ALL,
    out: ALL,
    problem: "spec.ingress[0].from[0] null",
  },
  {
    spec: { ...A, ingress: [{ from: [{ ipBlock: "0.0.0.0/0" }] }] },
    in: "x/b y/a",
    out: ALL,
    problem: 'spec.ingress[0].from[0].ipBlock "0.0.0.0/0"',
  },
  {
    spec: { ...A, ingress: [{ from: [{ ipBlock: { cidr: "0.0.0.0/0", except: "10.0.0.0/8" } }] }] },
    in: "x/b y/a",
    out: ALL,
    problem: 'spec.ingress[0].from[0].ipBlock.except "10.0.0.0/8"',
  },
  {
    spec: { ...A, ingress: [{ ports: 80 }] },
    in: "x/b y/a",
    out: ALL,
    problem: "spec.ingress[0].ports 80",
  },
  {
    spec: { ...A, ingress: [{ ports: [80] }] },
    in: "x/b y/a",
    out: ALL,
    problem: "spec.ingress[0].ports[0] 80",
  },
  {
    spec: { ...A, ingress: [{ ports: [{ port: [80] }] }] },
    in: "x/b y/a",
    out: ALL,
    problem: "spec.ingress[0].ports[0].port [80]",
  },
];

for (const { spec, in: into, out, problem } of CASES) {
  const text = JSON.stringify(spec);
  Deno.test(`an object of an API server isolates its pods with spec ${text}`, () => {
    const problems: ObjectProblem[] = [];
    const raw = { metadata: { name: "p", namespace: "x" }, spec };
    const object = slimObject(NETWORK_POLICY, raw, {
      strings: new StringTable(),
      onProblem: (each) => problems.push(each),
    });
    const state = stateWithPods();
    state.setPolicy("x/p" as PolicyKey, object);
    assertEquals([reachable(state, "in"), reachable(state, "out")], [into, out]);
    assertEquals(problems.map(({ object, path, value }) => `${object}: ${path} ${value}`), [
      `x/p: ${problem}`,
    ]);
    assert(problems[0]!.message.includes("the field has to be"), problems[0]!.message);
  });
}

Deno.test("one unreadable policy changes nothing for the pods of other namespaces and policies", () => {
  const state = stateWithPods();
  const raw = { metadata: { name: "p", namespace: "x" }, spec: { podSelector: 5 } };
  const object = slimObject(NETWORK_POLICY, raw, { strings: new StringTable(), onProblem() {} });
  state.setPolicy("x/p" as PolicyKey, object);
  setPolicy(state, "x/q", { podSelector: { matchLabels: { app: "b" } }, ingress: [{}] });
  assertEquals(reachable(state, "in"), "x/b y/a");
});

/** A folder with one policy, and the state that it feeds. */
async function withPolicyFile(
  spec: unknown,
  test: (folder: {
    readonly state: PolicyState;
    readonly problems: () => readonly string[];
    write(spec: unknown): Promise<void>;
  }) => Promise<void>,
): Promise<void> {
  const clock = new FakeClock();
  const files = new FakeManifestFiles(".", "m");
  const textOf = (spec: unknown) =>
    JSON.stringify({
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy",
      metadata: { name: "p", namespace: "x" },
      spec,
    });
  files.write("m/p.json", textOf(spec));
  const state = stateWithPods();
  const informers = new InformerSet();
  let isSynced = false;
  informers.subscribe(NETWORK_POLICY, {}, {
    onAdd: (object) => state.setPolicy(objectKey(object) as PolicyKey, object),
    onUpdate: (_, object) => state.setPolicy(objectKey(object) as PolicyKey, object),
    onDelete: (object) => state.setPolicy(objectKey(object) as PolicyKey, undefined),
    onSynced: () => void (isSynced = true),
  });
  const source = new FileManifestSource(
    { clock, logger: new MemoryLogger(), fileSystem: files },
    { paths: ["m"], informers },
  );
  const controller = new AbortController();
  const running = source.run(controller.signal);
  try {
    await settledUntil(clock, () => isSynced);
    await test({
      state,
      problems: () =>
        source.status().flatMap(({ problems }) =>
          problems.map(({ object, path, value }) => `${object}: ${path} ${value}`)
        ),
      write: async (spec) => {
        files.write("m/p.json", textOf(spec));
        await letPass({ clock }, SEEN_MS);
      },
    });
  } finally {
    controller.abort();
    await running;
  }
}

/** Also values that only a manifest can have, because an API server checks them. */
const MANIFEST_CASES: readonly Omit<UnreadableCase, "problem">[] = [
  // An invalid item of a list is as good as an invalid list where nothing else is known of it.
  ...CASES,
  { spec: { podSelector: { matchLabels: { "app ": "a" } }, ingress: [{}] }, in: "y/a", out: ALL },
  {
    spec: { podSelector: { matchExpressions: [{ key: "app", operator: "Is" }] } },
    in: "y/a",
    out: ALL,
  },
  { spec: { ...A, ingress: [{ ports: [{ port: 70_000 }] }] }, in: "x/b y/a", out: ALL },
  { spec: { ...A, ingress: [{ ports: [{ port: 70_000 }, { port: 80 }] }] }, in: ALL, out: ALL },
  { spec: { ...A, ingress: [{ from: [{}] }] }, in: "x/b y/a", out: ALL },
  {
    spec: { ...A, ingress: [{ from: [{ ipBlock: { cidr: "0.0.0.0/0", except: ["fd00::/8"] } }] }] },
    in: "x/b y/a",
    out: ALL,
  },
  {
    spec: { ...A, ingress: [{ ports: [{ port: "x" }, 5, { endPort: 9 }] }, { from: [{}] }] },
    in: "x/b y/a",
    out: ALL,
  },
  {
    spec: { ...A, policyTypes: ["Ingress", "Forward"], ingress: [{}] },
    in: "x/b y/a",
    out: "x/b y/a",
  },
];

for (const { spec, in: into, out } of MANIFEST_CASES) {
  Deno.test(`a manifest isolates its pods with spec ${JSON.stringify(spec)}`, async () => {
    await withPolicyFile(spec, async ({ state, problems, write }) => {
      assertEquals([reachable(state, "in"), reachable(state, "out")], [into, out]);
      assert(problems().some((text) => text.startsWith("NetworkPolicy x/p: spec")));
      await write({ ...A, ingress: [{}] });
      assertEquals([reachable(state, "in"), reachable(state, "out")], [ALL, ALL]);
    });
  });
}

Deno.test("an invalid manifest leaves the last valid version of a policy in force", async () => {
  await withPolicyFile({ ...A, ingress: [{}] }, async ({ state, problems, write }) => {
    await write({ podSelector: 5 });
    assertEquals([reachable(state, "in"), reachable(state, "out")], [ALL, ALL]);
    assertEquals(problems(), ["NetworkPolicy x/p: spec.podSelector 5"]);
  });
});

Deno.test("an invalid manifest takes the place of one that was invalid, too", async () => {
  await withPolicyFile({ podSelector: 5 }, async ({ state, write }) => {
    assertEquals(reachable(state, "in"), "y/a");
    await write({ ...A, ingress: 5 });
    assertEquals(reachable(state, "in"), "x/b y/a");
  });
});
