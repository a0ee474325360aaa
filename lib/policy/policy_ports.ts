/**
 * The `ports` of a rule.
 *
 * @module
 */
import type { NetworkPolicyPort } from "../api/kinds/network_policy.ts";
import type { ProblemCollector } from "../api/problem_collector.ts";
import { parsePort, PROTOCOLS, tryParsePort, tryParseProtocol } from "../net/port.ts";
import type { PortRange } from "./policy_plan.ts";
import type { NamedPort } from "./policy_pod.ts";

/** The ports of a rule that names some. */
export interface PolicyPorts {
  /** Sorted and disjoint. */
  readonly ranges: readonly PortRange[];
  /** Sorted and unique. */
  readonly names: readonly NamedPort[];
  /** No entry could be read: the rule matches nothing. */
  readonly isNothing: boolean;
}

/** Most entries of one rule. */
const MOST_ENTRIES = 4_096;
const [FIRST_PORT, LAST_PORT] = [parsePort(1), parsePort(65_535)];

/** Reads the ports of a rule; `undefined` = every port. An entry that cannot be read matches nothing. */
export function parsePolicyPorts(
  raw: readonly NetworkPolicyPort[] | undefined,
  { path, problems }: { readonly path: string; readonly problems: ProblemCollector },
): PolicyPorts | undefined {
  if (!raw?.length) return undefined;
  if (raw.length > MOST_ENTRIES) {
    const message = `A rule may have ${MOST_ENTRIES} ports: this one matches nothing; use endPort`;
    problems.report(path, raw.length, message);
    return { ranges: [], names: [], isNothing: true };
  }
  const ranges: PortRange[] = [];
  const names = new Map<string, NamedPort>();
  for (const [index, entry] of raw.entries()) {
    const parsed = parseEntry(entry);
    if (parsed === undefined) {
      const message =
        "The entry matches nothing: it has to be a protocol, and a port or its name, " +
        "or a port and an endPort that is not smaller";
      problems.report(`${path}[${index}]`, entry, message);
    } else if ("name" in parsed) names.set(`${parsed.protocol} ${parsed.name}`, parsed);
    else ranges.push(parsed);
  }
  return {
    ranges: mergePortRanges(ranges),
    names: [...names].sort(([left], [right]) => left < right ? -1 : 1).map(([, name]) => name),
    isNothing: ranges.length === 0 && names.size === 0,
  };
}

function parseEntry(
  { protocol: word, port, endPort, unknownFields }: NetworkPolicyPort,
): PortRange | NamedPort | undefined {
  const protocol = tryParseProtocol(word);
  if (protocol === undefined || unknownFields !== undefined) return undefined;
  if (typeof port !== "number") {
    if (endPort !== undefined) return undefined;
    return port === undefined
      ? { protocol, from: FIRST_PORT, to: LAST_PORT }
      : { protocol, name: port };
  }
  const [from, to] = [tryParsePort(port), tryParsePort(endPort ?? port)];
  return from === undefined || to === undefined || to < from ? undefined : { protocol, from, to };
}

/** Sorted and disjoint; neighbours become one. */
export function mergePortRanges(ranges: readonly PortRange[]): readonly PortRange[] {
  return PROTOCOLS.flatMap((protocol) => {
    const merged: PortRange[] = [];
    const own = ranges.filter((range) => range.protocol === protocol);
    for (const range of own.sort((left, right) => left.from - right.from)) {
      const before = merged.at(-1);
      if (before === undefined || range.from > before.to + 1) merged.push(range);
      else if (range.to > before.to) merged[merged.length - 1] = { ...before, to: range.to };
    }
    return merged;
  });
}
