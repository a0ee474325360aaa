import type { StartPacketWatch, TraceStep } from "../../lib/proxy/packet_trace.ts";
import { startNftWatch, type TraceEdges } from "../netfilter/trace/nft_watch.ts";
import { lookUpRules } from "../netfilter/trace/rule_texts.ts";
import { SOURCE_RANGES_CHAIN } from "./base_chains.ts";
import { TABLE } from "./containers.ts";
import { REJECT_CHAIN } from "./chain_spec.ts";

/** Watches packets in nftables mode. */
export function createNftablesTrace(edges: TraceEdges): StartPacketWatch {
  return (packet, { signal }) =>
    startNftWatch(edges, packet, {
      describe: describeNftablesStep,
      lookUp: (steps) => lookUpRules(edges.commands, steps),
      signal,
    });
}

/** The explanation of a rule; the first matching row counts. */
interface Row {
  readonly chain: RegExp;
  readonly rule?: RegExp;
  readonly verdict?: RegExp;
  readonly words: (service: string, choices: string) => string;
}

const CHOOSING = /^(?:node-port-)?(?:to|off-cluster|masquerade|local)-\S+$/;
const NO_LOCAL = "no endpoint on this node, and its traffic policy is Local: dropped";

const ROWS: readonly Row[] = [
  { chain: /^loopback-guard$/, words: () => "came from a neighbour for a loopback address" },
  {
    chain: /^nat-(prerouting|output)$/,
    rule: /jump services/,
    words: () => "a new connection: is this an address of a Service?",
  },
  { chain: /^services$/, verdict: /^drop$/, words: (service) => `${service}: ${NO_LOCAL}` },
  {
    chain: /^services$/,
    rule: /@service-ips/,
    verdict: new RegExp(`goto ${REJECT_CHAIN}`),
    words: (service) => `an address of ${service}, which has no endpoint`,
  },
  { chain: /^services$/, rule: /@service-ips/, words: (service) => `an address of ${service}` },
  {
    chain: /^services$/,
    rule: /@node-ports/,
    words: (service) => `an address of this node, at the node port of ${service}`,
  },
  { chain: /^unclaimed-/, words: () => "no Service took it: is the address a cluster IP?" },
  {
    chain: /^unclaimed$/,
    rule: /@cluster-ips/,
    words: () => "a cluster IP, but none of the Service's ports",
  },
  {
    chain: /^unclaimed$/,
    rule: /@service-cidrs/,
    words: () => "in the range of Services, but no Service has this address: dropped",
  },
  {
    chain: new RegExp(`^${SOURCE_RANGES_CHAIN}$`),
    verdict: /^drop$/,
    words: (service) => `the sender is in no source range of ${service}: dropped`,
  },
  {
    chain: new RegExp(`^${SOURCE_RANGES_CHAIN}$`),
    words: (service) => `the sender is in a source range of ${service}`,
  },
  { chain: new RegExp(`^${REJECT_CHAIN}$`), words: () => "refused: the sender gets an error" },
  {
    chain: CHOOSING,
    rule: /^(?:(?!dnat).)*meta mark set/,
    words: () => "marked to leave with an address of this node as its source (masquerade)",
  },
  {
    chain: CHOOSING,
    rule: /map @affinity .*dnat/,
    words: () => "goes to the endpoint that this client had last (session affinity)",
  },
  {
    chain: CHOOSING,
    rule: /numgen random.*dnat/,
    words: (_, choices) => `goes to one of ${choices}, taken at random`,
  },
  { chain: CHOOSING, rule: /dnat/, words: () => "goes to the endpoint that was chosen" },
  {
    chain: CHOOSING,
    rule: /update @affinity/,
    words: (_, choices) => `one of ${choices} is taken at random, and remembered for the client`,
  },
  {
    chain: CHOOSING,
    rule: /delete @affinity/,
    words: () => "the client has no endpoint that it may have here",
  },
  { chain: CHOOSING, verdict: /^drop$/, words: (service) => `${service}: ${NO_LOCAL}` },
  {
    chain: CHOOSING,
    verdict: new RegExp(`goto ${REJECT_CHAIN}`),
    words: (service) => `${service} has no endpoint for this sender`,
  },
  {
    chain: /^nat-postrouting$/,
    rule: /@hairpin masquerade/,
    words: () => "returns to its sender: gets an address of this node as its source",
  },
  {
    chain: /^nat-postrouting$/,
    rule: /masquerade/,
    words: () => "gets an address of this node as its source (masquerade)",
  },
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
  const row = ROWS.find((row) =>
    row.chain.test(chain) && (row.rule?.test(rule) ?? true) && (row.verdict?.test(verdict) ?? true)
  );
  return row?.words(service, choicesOf(chain, rule));
}

/** Returns the number of endpoints that a rule chooses from. */
function choicesOf(chain: string, rule: string): string {
  const count = Number(/numgen random mod (\d+)/.exec(rule)?.[1] ?? /-(\d+)/.exec(chain)?.[1] ?? 0);
  return count === 1 ? "1 endpoint" : `${count} endpoints`;
}
