/**
 * A cluster of network namespaces whose node runs kube-relay, and the packet-flow table with real
 * packets on it.
 */
import type { BackendMode } from "../../lib/proxy/backend.ts";
import { ApiProcess } from "../support/drivers/api_process.ts";
import { type ClusterTopology, createClusterTopology } from "../support/stages/cluster_topology.ts";
import type { Namespace } from "../support/stages/netns.ts";
import { PACKET_FLOW_CASES } from "./cases.ts";
import { explainCase, explainStage, outcomeOf } from "./explain_executor.ts";
import type { PacketFlowCase, PacketOutcome } from "./packet_flow_case.ts";
import { PacketSender } from "./packet_sender.ts";
import { ScenarioRelay } from "./scenario_relay.ts";
import {
  checkOutcome,
  type PacketFlowAdaptation,
  type PacketFlowSkip,
  runPacketFlowSteps,
} from "./suite.ts";
import { asUdp, inOtherFamily } from "./variants.ts";

/** The options of the stage. */
export interface PacketStageOptions {
  /** The tested mode, e.g. `nftables`. */
  readonly name: string;
  readonly mode: BackendMode;
  /** Further flags of the command line. @default {[]} */
  readonly flags?: readonly string[];
  /** Whether the rows of TCP are sent as UDP too. @default {true} */
  readonly asUdp?: boolean;
  /** Selects the rows to send. @default {all} */
  readonly only?: (packet: PacketFlowCase) => boolean;
  /** Rows with another meaning in this mode. */
  readonly adapt?: readonly PacketFlowAdaptation[];
  /** Done before kube-relay is started. */
  readonly prepare?: (cluster: ClusterTopology) => Promise<void>;
  /** Looks at the node when all packets have been sent. */
  readonly check?: (cluster: ClusterTopology) => Promise<void>;
}

const SKIPPED: readonly PacketFlowSkip[] = [
  { reason: "Deno has no SCTP sockets", cases: ({ protocol }) => protocol === "SCTP" },
  {
    reason: "kube-proxy has no setting for it; the plan's own test covers the option",
    cases: ({ scenario }) => scenario.settings?.allowExternalIps === false,
  },
  {
    reason: "an API server mirrors Endpoints to slices; the tests of manifests cover them",
    cases: ({ scenario }) => scenario.endpoints !== undefined,
  },
];

/**
 * Sends every row in both families, and in both protocols, with a step for each scenario. All modes but
 * userspace need the program conntrack.
 */
export async function runPacketStage(
  t: Deno.TestContext,
  { name, mode, adapt = [], flags = [], prepare, check, asUdp = true, only = () => true }:
    PacketStageOptions,
): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await using cluster = await createClusterTopology();
    // Silence would be taken for the proxy's.
    await cluster.node.sysctl("net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0");
    await prepare?.(cluster);
    const api = await ApiProcess.start(cluster.node, `${folder}/kubeconfig`);
    await using relay = new ScenarioRelay(cluster.node, { api, folder, mode, flags });
    const sender = await PacketSender.start(cluster);
    await runPacketFlowSteps(t, {
      name,
      cases: allCases(asUdp).filter(only),
      skip: SKIPPED,
      adapt,
      prepare: async (scenario) => {
        await relay.serve(scenario);
        if (mode !== "userspace") await forgetFlows(cluster.node);
        return { [Symbol.asyncDispose]: () => Promise.resolve() };
      },
      async execute(packet) {
        const outcome = await sender.execute(packet);
        checkExplanation(mode, packet, outcome);
        return outcome;
      },
    });
    await check?.(cluster);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/**
 * Deletes the entries of connection tracking. Linux keeps the choice for a UDP flow for half a
 * minute, and for an unanswered TCP connection for two minutes; the ports of clients repeat sooner.
 * A client with such a port would get the choice of another scenario.
 */
async function forgetFlows(node: Namespace): Promise<void> {
  const flows = ["-p udp", "-p tcp --state SYN_SENT"];
  const commands = ["ipv4", "ipv6"].flatMap((family) =>
    flows.map((flow) => `conntrack -D -f ${family} ${flow}`)
  );
  // It fails where there is none.
  await node.output("sh", ["-c", [...commands, "true"].join("; ")]);
}

/** Checks that `explain` agrees with the observation on the wire. */
function checkExplanation(mode: BackendMode, packet: PacketFlowCase, seen: PacketOutcome): void {
  const stage = explainStage(mode, packet.scenario, packet.family);
  const explained = outcomeOf(explainCase(stage, packet));
  checkOutcome({ ...packet, ...explained, name: `${packet.name}, as explained` }, seen);
}

/** Those with the same settings in a row: other settings cost a start. */
function allCases(withUdp: boolean): PacketFlowCase[] {
  const cases = [...PACKET_FLOW_CASES, ...(withUdp ? asUdp(PACKET_FLOW_CASES) : [])];
  return [...Map.groupBy([...cases, ...inOtherFamily(cases)], settingsKey).values()].flat();
}

function settingsKey({ scenario }: PacketFlowCase): string {
  return JSON.stringify(scenario.settings ?? {});
}
