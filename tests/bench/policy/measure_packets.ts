/**
 * First packets to a pod, each through a router of its own with the rules of one tool. The client and the
 * pod are the same for all routers, and take turns between them.
 *
 * @module
 */
import { Namespace } from "../../support/stages/netns.ts";
import { BenchNamespace } from "../bench_namespace.ts";
import { NFT } from "../nftables/nft_tool.ts";
import { spreadOf } from "../statistics.ts";
import type { LoadTask } from "./load_rules.ts";
import type { PolicyTool } from "./rules_figures.ts";

/** The policies behind one router. */
export interface PacketScene {
  readonly name: string;
  readonly policiesOfPod: number;
  /** Of each policy of the pod; the last one allows the packet. */
  readonly rules: number;
  readonly policiesElsewhere: number;
}

/** Median microseconds of a connection to the pod. */
export interface PacketFigures extends PacketScene {
  readonly tool: PolicyTool;
  readonly median: number;
  /** The median of the same connections through a router without policies. */
  readonly without: number;
}

/** The scenes of each tool. */
export const PACKET_SCENES: readonly PacketScene[] = [
  { name: "1,000 policies elsewhere", policiesOfPod: 0, rules: 0, policiesElsewhere: 1_000 },
  { name: "10 on the pod, of 1 rule", policiesOfPod: 10, rules: 1, policiesElsewhere: 0 },
  { name: "10 on the pod, 1,000 elsewhere", policiesOfPod: 10, rules: 1, policiesElsewhere: 1_000 },
  { name: "10 on the pod, of 5 rules", policiesOfPod: 10, rules: 5, policiesElsewhere: 0 },
];

const LOAD_RULES = new URL("./load_rules.ts", import.meta.url);
/** Connections to each address before the agent is asked again. */
const ROUNDS = 20;
/** Every node of Kubernetes tracks connections; a router without rules does not. */
const TRACKING = "add table ip tracking\n" +
  "add chain ip tracking forward { type filter hook forward priority -5 ; }\n" +
  "add rule ip tracking forward ct state established counter\n";

/** Measures all scenes of some tools. */
export async function measurePackets(
  tools: readonly PolicyTool[],
  turns: number,
): Promise<readonly PacketFigures[]> {
  const scenes = tools.flatMap((tool) => PACKET_SCENES.map((scene) => ({ tool, ...scene })));
  await using client = await BenchNamespace.create(NFT);
  await using pod = await BenchNamespace.create(NFT);
  const labels = ["none", ...scenes.map((_, index) => `scene${index}`)];
  const routers = await Namespace.createAll(labels);
  try {
    for (const [index, router] of routers.entries()) {
      await connectRouter(router, { index, client, pod });
      await router.output("nft", [TRACKING]);
    }
    for (const [index, scene] of scenes.entries()) {
      const task: LoadTask = { ...scene, address: podAddress(index + 1), allowed: CLIENTS };
      await loadRules(routers[index + 1]!, task);
    }
    const addresses = routers.map((_, index) => podAddress(index));
    const times = addresses.map((): number[] => []);
    for (let turn = 0; turn < turns; turn++) {
      const found = await client.connect(addresses, ROUNDS);
      for (const [index, address] of addresses.entries()) times[index]!.push(...found[address]!);
    }
    const [without = NaN, ...medians] = times.map((each) => spreadOf(each).median);
    return scenes.map((scene, index) => ({ ...scene, median: medians[index]!, without }));
  } finally {
    await Namespace.removeAll(routers);
  }
}

const CLIENTS = "10.140.0.0/16";

function podAddress(index: number): string {
  return `10.130.${index}.2`;
}

/** A link from the client to the router, and one from there to the pod. */
async function connectRouter(
  router: Namespace,
  { index, client, pod }: {
    readonly index: number;
    readonly client: BenchNamespace;
    readonly pod: BenchNamespace;
  },
): Promise<void> {
  const sides = [
    { end: client, near: `10.140.${index}`, far: `10.130.${index}` },
    { end: pod, near: `10.130.${index}`, far: `10.140.${index}` },
  ];
  for (const [side, { end, near, far }] of sides.entries()) {
    await end.namespace.ipBatch([
      `link add to${index} type veth peer name side${side} netns ${router.name}`,
      `addr add ${near}.2/24 dev to${index}`,
      `link set to${index} up`,
    ]);
    await router.ipBatch([`addr add ${near}.1/24 dev side${side}`, `link set side${side} up`]);
    await end.namespace.ip(`route add ${far}.0/24 via ${near}.1`);
  }
  await router.sysctl("net.ipv4.ip_forward=1");
}

async function loadRules(router: Namespace, task: LoadTask): Promise<void> {
  const rights = ["net", "read", "write", "env", "sys", "run", "ffi"];
  await router.output(Deno.execPath(), [
    ...["run", "--quiet", "--no-prompt", "--no-check"],
    ...rights.map((right) => `--allow-${right}`),
    LOAD_RULES.pathname,
    JSON.stringify(task),
  ]);
}
