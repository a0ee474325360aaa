/**
 * The packet-flow table with real packets, through kube-relay on the node of a small cluster.
 *
 * @module
 */
import { PACKET_FLOW_CASES } from "../packet_flow/cases.ts";
import type { PacketFlowCase } from "../packet_flow/packet_flow_case.ts";
import { PacketSender } from "../packet_flow/packet_sender.ts";
import { ScenarioRelay } from "../packet_flow/scenario_relay.ts";
import {
  type PacketFlowAdaptation,
  type PacketFlowSkip,
  runPacketFlowSteps,
} from "../packet_flow/suite.ts";
import { asUdp, inOtherFamily } from "../packet_flow/variants.ts";
import { ApiProcess } from "../support/api_process.ts";
import { createClusterTopology } from "../support/cluster_topology.ts";
import { netnsRequirements } from "../support/netns.ts";
import { isMissing, program } from "../support/requirement.ts";

const ignore = isMissing("the packet-flow table with real packets", [
  ...netnsRequirements(),
  program("bash"),
]);

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

const isDropped = ({ verdict }: PacketFlowCase) => verdict === "DROP";

/** Whether the address has a socket: some client has an endpoint there, though not this one. */
function isSharedWithOthers({ scenario, to }: PacketFlowCase): boolean {
  const [service] = scenario.services;
  const isClusterIp = [service?.spec.clusterIP, ...service?.spec.clusterIPs ?? []].includes(to);
  return !isClusterIp || service?.spec.internalTrafficPolicy !== "Local";
}

const ADAPTED: readonly PacketFlowAdaptation[] = [
  {
    reason: "every connection to an endpoint is made by the node",
    cases: () => true,
    expect: { masquerade: true },
  },
  {
    reason: "a TCP connection cannot be left unanswered without a rule: it is closed at once",
    cases: (packet) => isDropped(packet) && packet.protocol === "TCP",
    expect: { verdict: "REJECT" },
  },
  {
    reason: "where no client has an endpoint there is no socket, and the kernel refuses",
    cases: (packet) =>
      isDropped(packet) && packet.protocol === "UDP" && !isSharedWithOthers(packet),
    expect: { verdict: "REJECT" },
  },
];

/** Every row in both families and both protocols; those with the same settings in a row. */
function allCases(): PacketFlowCase[] {
  const udp = asUdp(PACKET_FLOW_CASES);
  const cases = [...PACKET_FLOW_CASES, ...udp];
  return [...Map.groupBy([...cases, ...inOtherFamily(cases)], settingsKey).values()].flat();
}

function settingsKey({ scenario }: PacketFlowCase): string {
  return JSON.stringify(scenario.settings ?? {});
}

Deno.test({
  name: "packet flow with real packets through userspace mode",
  ignore,
  async fn(t) {
    const folder = await Deno.makeTempDir();
    try {
      await using cluster = await createClusterTopology();
      // Silence would be taken for the proxy's.
      await cluster.node.sysctl("net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0");
      const api = await ApiProcess.start(cluster.node, `${folder}/kubeconfig`);
      await using relay = new ScenarioRelay(cluster.node, { api, folder, mode: "userspace" });
      const sender = await PacketSender.start(cluster);
      await runPacketFlowSteps(t, {
        name: "userspace",
        cases: allCases(),
        skip: SKIPPED,
        adapt: ADAPTED,
        prepare: async (scenario) => {
          await relay.serve(scenario);
          return { [Symbol.asyncDispose]: () => Promise.resolve() };
        },
        execute: (packet) => sender.execute(packet),
      });
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
});
