/**
 * Rows of the packet-flow table with another meaning in a mode: the expected result on the wire,
 * and the mode's own explanation.
 */
import type { BackendMode } from "../../lib/proxy/backend.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import type { PacketFlowCase } from "./packet_flow_case.ts";
import type { PacketFlowAdaptation } from "./suite.ts";

const PLANS = [ADDRESSES.IPv4, ADDRESSES.IPv6];
const FIRST_NODE_PORT = 30_000;
const LOOPBACKS: readonly string[] = PLANS.map(({ loopback }) => loopback);

const isDropped = ({ verdict }: PacketFlowCase) => verdict === "DROP";

/** Whether the address has a socket: some client has an endpoint there, though not this one. */
function isSharedWithOthers({ scenario, to }: PacketFlowCase): boolean {
  const [service] = scenario.services;
  const isClusterIp = [service?.spec.clusterIP, ...service?.spec.clusterIPs ?? []].includes(to);
  return !isClusterIp || service?.spec.internalTrafficPolicy !== "Local";
}

const USERSPACE: readonly PacketFlowAdaptation[] = [
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

const NO_LOOPBACK_V6: PacketFlowAdaptation = {
  reason: "IPv6 has no route_localnet: packets to ::1 stay on loopback",
  cases: ({ to }) => to === ADDRESSES.IPv6.loopback,
  expect: { verdict: "UNCLAIMED", masquerade: false },
};

const IPTABLES: readonly PacketFlowAdaptation[] = [NO_LOOPBACK_V6];

const NFTABLES: readonly PacketFlowAdaptation[] = [
  {
    reason:
      "without a word, node ports are on the first address of the node only, as in kube-proxy",
    cases: ({ port, to, scenario }) =>
      port >= FIRST_NODE_PORT && scenario.settings?.nodePortAddresses === undefined &&
      PLANS.some(({ loopback, nodeSecond }) => to === loopback || to === nodeSecond),
    expect: { verdict: "UNCLAIMED", masquerade: false },
  },
  NO_LOOPBACK_V6,
];

/** Whether both policies are Local. */
function isLocalTwice({ scenario: { services: [service] } }: PacketFlowCase): boolean {
  const { internalTrafficPolicy, externalTrafficPolicy } = service?.spec ?? {};
  return internalTrafficPolicy === "Local" && externalTrafficPolicy === "Local";
}

/** Whether the packet is for endpoints of the other node alone. */
function isElsewhere({ family, verdict }: PacketFlowCase): boolean {
  const { remotePods } = ADDRESSES[family];
  return typeof verdict !== "string" &&
    verdict.every((endpoint) => remotePods.some((pod) => endpoint.includes(pod)));
}

const IPVS: readonly PacketFlowAdaptation[] = [
  {
    reason: "IPVS leaves loopback addresses alone",
    cases: ({ to }) => LOOPBACKS.includes(to),
    expect: { verdict: "UNCLAIMED", masquerade: false },
  },
  {
    reason: "where both policies are Local no virtual server has the endpoints of other nodes",
    cases: (packet) => isLocalTwice(packet) && isElsewhere(packet),
    expect: { verdict: "DROP", masquerade: false },
  },
];

/** By mode. */
export const MODE_ADAPTATIONS: Readonly<Record<BackendMode, readonly PacketFlowAdaptation[]>> = {
  iptables: IPTABLES,
  ipvs: IPVS,
  nftables: NFTABLES,
  userspace: USERSPACE,
};
