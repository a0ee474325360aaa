import type { StartPacketWatch, TraceStep } from "../../lib/proxy/packet_trace.ts";
import { startNftWatch, type TraceEdges } from "../netfilter/trace/nft_watch.ts";
import { REJECT_CHAIN, SOURCE_RANGES_CHAIN } from "./chain_spec.ts";
import { TABLE } from "./containers.ts";

/** Watches packets in nftables mode. */
export function createNftablesTrace(edges: TraceEdges): StartPacketWatch {
  return (packet, { signal }) => startNftWatch(edges, packet, signal, describeNftablesStep);
}

const CHOOSING = /^(?:node-port-)?(?:to|off-cluster|masquerade|local)-\S+: /;
const NO_LOCAL = "%s: no endpoint on this node, and its traffic policy is Local: dropped";

/**
 * The meanings of steps, which are matched as `CHAIN: VERDICT: RULE`; the first one counts. `%s` is the
 * ServicePort, `%n` the number of endpoints that a rule chooses from.
 */
const MEANINGS: readonly (readonly [step: RegExp, words: string])[] = [
  [/^loopback-guard: /, "came from a neighbour for a loopback address"],
  [
    /^nat-(prerouting|output): .*: .*jump services/,
    "a new connection: is this an address of a Service?",
  ],
  [/^services: drop: /, NO_LOCAL],
  [
    new RegExp(`^services: goto ${REJECT_CHAIN}: .*@service-ips`),
    "an address of %s, which has no endpoint",
  ],
  [/^services: .*@service-ips/, "an address of %s"],
  [/^services: .*@node-ports/, "an address of this node, at the node port of %s"],
  [/^unclaimed-/, "no Service took it: is the address a cluster IP?"],
  [/^unclaimed: .*@cluster-ips/, "a cluster IP, but none of the Service's ports"],
  [
    /^unclaimed: .*@service-cidrs/,
    "in the range of Services, but no Service has this address: dropped",
  ],
  [
    new RegExp(`^${SOURCE_RANGES_CHAIN}: drop: `),
    "the sender is in no source range of %s: dropped",
  ],
  [new RegExp(`^${SOURCE_RANGES_CHAIN}: `), "the sender is in a source range of %s"],
  [new RegExp(`^${REJECT_CHAIN}: `), "refused: the sender gets an error"],
  [
    new RegExp(`${CHOOSING.source}(?:(?!dnat).)*meta mark set`),
    "marked to leave with an address of this node as its source (masquerade)",
  ],
  [
    new RegExp(`${CHOOSING.source}.*map @affinity .*dnat`),
    "goes to the endpoint that this client had last (session affinity)",
  ],
  [
    new RegExp(`${CHOOSING.source}.*numgen random.*dnat`),
    "goes to one of %n, taken at random",
  ],
  [new RegExp(`${CHOOSING.source}.*dnat`), "goes to the endpoint that was chosen"],
  [
    new RegExp(`${CHOOSING.source}.*update @affinity`),
    "one of %n is taken at random, and remembered for the client",
  ],
  [
    new RegExp(`${CHOOSING.source}.*delete @affinity`),
    "the client has no endpoint that it may have here",
  ],
  [new RegExp(`${CHOOSING.source}drop: `), NO_LOCAL],
  [
    new RegExp(`${CHOOSING.source}goto ${REJECT_CHAIN}: `),
    "%s has no endpoint for this sender",
  ],
  [
    /^nat-postrouting: .*@hairpin masquerade/,
    "returns to its sender: gets an address of this node as its source",
  ],
  [/^nat-postrouting: .*masquerade/, "gets an address of this node as its source (masquerade)"],
];

/**
 * Explains a step in this mode's table; `undefined` for other tables and for self-explanatory
 * steps.
 */
export function describeNftablesStep(
  { place, rule, verdict }: TraceStep,
  service = "no Service that is known",
): string | undefined {
  const [, table, chain] = place.split(" ");
  if (table !== TABLE || chain === undefined || rule === undefined) return undefined;
  const step = `${chain}: ${verdict}: ${rule}`;
  const count = Number(/numgen random mod (\d+)/.exec(rule)?.[1] ?? /-(\d+)/.exec(chain)?.[1] ?? 0);
  return MEANINGS.find(([meant]) => meant.test(step))?.[1]
    .replace("%n", count === 1 ? "1 endpoint" : `${count} endpoints`)
    .replace("%s", () => service);
}
