/**
 * The table that counts the traffic of each Service, with `--service-counters`.
 *
 * A separate table keeps forwarding unchanged, whether traffic is counted or not, and independent
 * of failures here. The hooks are of type filter to see every packet; those of type nat only see
 * the first one of a connection. They come after all DNAT, so that the first packet is already
 * known as one of a Service.
 *
 * ```
 *  arrives, but not by lo ─► arriving ─┬─ ct status dnat ─► count ─► service-ips, node-ports
 *  is sent ────────────────► sent ─────┘
 * ```
 *
 * A packet is looked up by the original destination of its connection, which conntrack knows in
 * both directions. Packets from the node to itself pass both hooks, so those arriving by `lo` are
 * left out. Pure.
 *
 * @module
 */
import type { KernelObject } from "../../lib/engine/reconciler.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { NftChain, NftContainer, NftTableSpec } from "../netfilter/nft/nft_objects.ts";
import { chainObject, containerObjects } from "../netfilter/nft/nft_table.ts";
import { claimsOf, containerOf, type EntryId, keyOfEntry } from "./entry_id.ts";
import { EXPRESSIONS } from "./expressions.ts";

/** Its sets; each element has a counter. */
const COUNTING_SETS: readonly string[] = ["service-ips", "node-ports"];

/** The direction of a packet, as conntrack defines it. */
export const DIRECTIONS = ["original", "reply"] as const;

const PROTOCOLS = "meta l4proto { tcp, udp, sctp }";
const PORT = "meta l4proto . ct original proto-dst . ct direction";
const COUNT = "ct status dnat goto count";
/** After all DNAT of the usual priority, before filters of the usual one. */
const PRIORITY = -80;

/** The table of one family. */
export function countingTable(family: IpFamily): NftTableSpec {
  const { address, table } = EXPRESSIONS[family];
  const port = "inet_proto . inet_service . ct_dir";
  const set = (type: string): NftContainer => ({
    kind: "set",
    declaration: `type ${type} ; counter`,
  });
  return {
    family: table,
    name: "kube-relay-counters",
    containers: new Map([["service-ips", set(`${address} . ${port}`)], ["node-ports", set(port)]]),
  };
}

/** Its chains. */
export function countingChains(family: IpFamily): readonly NftChain[] {
  const { table } = EXPRESSIONS[family];
  const hookAt = (hook: string) => `type filter hook ${hook} priority ${PRIORITY}`;
  // Without the protocols first, nft 1.0.6 takes a port of conntrack into no key.
  const vip = `${PROTOCOLS} ct original ${table} daddr . ${PORT}`;
  return [
    {
      name: "count",
      rules: [`${vip} @service-ips accept`, `${PROTOCOLS} ${PORT} @node-ports accept`],
    },
    { name: "arriving", hook: hookAt("prerouting"), rules: [`iif != "lo" ${COUNT}`] },
    { name: "sent", hook: hookAt("output"), rules: [COUNT] },
  ];
}

/** What belongs to no Service: the sets and the chains. */
export function countingFrame(family: IpFamily): readonly KernelObject[] {
  return [
    ...containerObjects(countingTable(family)),
    ...countingChains(family).map(chainObject),
  ];
}

/** The frontends of a ServicePort: the entries that receive packets. */
export function countedIds(plan: ServicePlan): readonly EntryId[] {
  return claimsOf(plan).filter((id) => COUNTING_SETS.includes(containerOf(id)));
}

/** The counters of a frontend: one for each direction. Several ServicePorts may share them. */
export function countersOf(id: EntryId): readonly KernelObject[] {
  return DIRECTIONS.map((direction) => ({
    kind: containerOf(id),
    name: `${keyOfEntry(id)} . ${direction}`,
    text: "",
    isShared: true as const,
  }));
}
