/**
 * The packet-flow table for the other IP family and for UDP: the meaning of a Service depends on
 * neither.
 */
import { ipFamilyOf, parseIpAddress } from "../../lib/net/ip_address.ts";
import { formatHostPort, type Protocol } from "../../lib/net/port.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import type { PacketFlowCase, PacketFlowScenario, PacketVerdict } from "./packet_flow_case.ts";

/** Texts of the table that are no address of the plan. */
const FURTHER_TEXTS = [
  ["IPv4", "IPv6"],
  ["192.168.0.0/24", "2001:db8::/64"],
  ["0.0.0.0/0", "::/0"],
  ["172.30.0.20", "fd00:172:30::20"],
  ["172.30.0.30", "fd00:172:30::30"],
  ["172.30.0.99", "fd00:172:30::99"],
] as const;

/** The counterpart of each text in the other family. */
const COUNTERPARTS: ReadonlyMap<string, string> = new Map(
  [...addressPairs(), ...FURTHER_TEXTS].flatMap(([a, b]) => [[a, b], [b, a]]),
);

function* addressPairs(): Iterable<readonly [string, string]> {
  const [texts, others] = [ADDRESSES.IPv4, ADDRESSES.IPv6].map((plan) =>
    Object.values(plan).flat()
  );
  for (const [index, text] of texts?.entries() ?? []) yield [text, others?.[index] ?? ""];
}

/** The same rows with every address, range and family exchanged for its counterpart. */
export function inOtherFamily(cases: readonly PacketFlowCase[]): PacketFlowCase[] {
  const swap = perScenario((_, value) =>
    typeof value === "string" ? COUNTERPARTS.get(value) ?? value : value
  );
  return cases.map((packet) => {
    const to = parseIpAddress(COUNTERPARTS.get(packet.to) ?? packet.to);
    const family = ipFamilyOf(to);
    const verdict = otherVerdict(packet.verdict);
    return renamed({ ...packet, scenario: swap(packet.scenario), to, family, verdict });
  });
}

function otherVerdict(verdict: PacketVerdict): PacketVerdict {
  if (typeof verdict === "string") return verdict;
  return verdict.map((endpoint) => {
    const at = endpoint.lastIndexOf(":");
    const address = endpoint.slice(0, at).replace(/^\[|\]$/g, "");
    const port = Number(endpoint.slice(at + 1));
    return formatHostPort(COUNTERPARTS.get(address) ?? address, port);
  });
}

const OTHER_PROTOCOL = { TCP: "UDP", UDP: "TCP", SCTP: "SCTP" } as const satisfies Record<
  Protocol,
  Protocol
>;

/** The rows of scenarios that know TCP alone, as rows of UDP. */
export function asUdp(cases: readonly PacketFlowCase[]): PacketFlowCase[] {
  const toUdp = perScenario((key, value) =>
    key === "ports" && Array.isArray(value)
      ? value.map((port) => ({ ...port, protocol: "UDP" }))
      : value
  );
  return cases.filter(({ scenario }) => isTcpOnly(scenario)).map((packet) => {
    const protocol = OTHER_PROTOCOL[packet.protocol];
    return renamed({ ...packet, scenario: toUdp(packet.scenario), protocol });
  });
}

function isTcpOnly({ services, slices = [] }: PacketFlowScenario): boolean {
  return !/"protocol":"(UDP|SCTP)"/.test(JSON.stringify([services, slices]));
}

/** Rewrites scenarios; rows that share one still do. */
function perScenario(
  replace: (key: string, value: unknown) => unknown,
): (scenario: PacketFlowScenario) => PacketFlowScenario {
  const known = new Map<PacketFlowScenario, PacketFlowScenario>();
  return (scenario) => {
    const found: PacketFlowScenario = known.get(scenario) ??
      JSON.parse(JSON.stringify(scenario, replace));
    known.set(scenario, found);
    return found;
  };
}

function renamed(packet: PacketFlowCase): PacketFlowCase {
  const { scenario, from, to, port, protocol } = packet;
  const name = `${scenario.name}: ${from} to ${formatHostPort(to, port)}/${protocol}`;
  return { ...packet, name };
}
