/**
 * Parses `nft monitor trace` (checked with 1.0.6, which has no JSON for it). Pure.
 *
 * @module
 */
import { headerOf, type TraceEvent } from "./trace_event.ts";
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import { nftFamily } from "../nft/nft_objects.ts";

const LINE = /^trace id ([0-9a-f]+) (\w+) (\S+) (\S+) (packet:|rule|unknown|policy|verdict) ?(.*)$/;
/** Nothing in a rule's own text ends in this. */
const RULE = /^(.*) \(verdict ([^()]*)\)\s*$/;

/** At the end of a rule's text, for `nft -a`. */
const HANDLE = /^(.*) # handle (\d{1,9})$/;
/** A rule that the tool does not have: only its number is known. */
const UNKNOWN = /^(rule handle (\d{1,9}))$/;

/** Parses one line; `undefined` if it is not about a packet. */
export function parseNftTraceLine(line: string): TraceEvent | undefined {
  const [, id, family, table, chain, word, rest] = LINE.exec(line) ?? [];
  if (id === undefined || word === undefined || rest === undefined) return undefined;
  const place = { id, table: `${family} ${table}`, chain: chain! };
  switch (word) {
    case "packet:": {
      const header = headerOf(fieldsOf(rest));
      return header && { ...place, kind: "packet", header };
    }
    case "policy":
      return { ...place, kind: "policy", verdict: rest.split(" ")[0] ?? "" };
    case "verdict":
      return { ...place, kind: "policy", verdict: rest.trim() };
    default: {
      const [, rule, verdict] = RULE.exec(rest) ?? [];
      if (rule === undefined || verdict === undefined) return undefined;
      const [, text = rule, handle] = (word === "unknown" ? UNKNOWN : HANDLE).exec(rule) ?? [];
      return {
        ...place,
        kind: "rule",
        rule: withoutCounters(text),
        verdict,
        ...(handle !== undefined && { handle: Number(handle) }),
      };
    }
  }
}

/** {@linkcode parseNftTraceLine} as a monitor wants it. */
export function parseNftTraceLines(line: string): readonly TraceEvent[] {
  const event = parseNftTraceLine(line);
  return event === undefined ? [] : [event];
}

/** A rule's text without its counters: they are of the moment at which nft read the rules. */
export function withoutCounters(rule: string): string {
  return rule.replaceAll(/\bcounter packets \d+ bytes \d+ ?/g, "").replaceAll(/ {2,}/g, " ").trim();
}

function fieldsOf(text: string) {
  const field = (name: RegExp) => name.exec(text)?.[1];
  return {
    source: field(/\bip6? saddr (\S+)/),
    destination: field(/\bip6? daddr (\S+)/),
    sourcePort: field(/\b(?:tcp|udp|sctp) sport (\d+)/),
    destinationPort: field(/\b(?:tcp|udp|sctp) dport (\d+)/),
    id: field(/\bip id (\d+)/),
    arrivedBy: field(/\biif "([^"]*)"/),
    leavesBy: field(/\boif "([^"]*)"/),
  };
}

/**
 * Returns command lines, the best one first.
 *
 * nft reads all rules of the machine before it watches, only to print their texts: at ten thousand
 * Services this takes one to three seconds and 150 MB. The last command determines what is read
 * (`nft_cache_evaluate()`; checked with 1.0.6), so a listing of a table with two rules follows the
 * monitor, which never ends. Rules are then printed as numbers and looked up afterwards. An nft
 * without this optimization reads everything; one that refuses two commands gets the second line.
 */
export function nftMonitorLines(
  { family, table }: { readonly family: IpFamily; readonly table: string },
): readonly (readonly string[])[] {
  return [
    ["nft", "-a", `monitor trace; list table ${nftFamily(family)} ${table}`],
    ["nft", "-a", "monitor", "trace"],
  ];
}
