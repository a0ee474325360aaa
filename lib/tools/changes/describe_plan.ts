/** Describes the difference between two plans of a ServicePort. Pure. */
import { describeEdgeSettings } from "../../proxy/edge_settings.ts";
import { isExternal, masqueradeExternal } from "../../proxy/frontend.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import type { Verdict } from "../../proxy/verdict.ts";

/** Most words of one object. */
const MOST_WORDS = 8;
/** Most items of one kind that are named. */
const MOST_ITEMS = 3;
/** Longest text: an object may hold any. */
const LONGEST = 120;

/** Longer lists of endpoints are counted. */
const MOST_COMPARED = 200;

/** Describes the difference between two plans of one ServicePort; one of them may be absent. */
export function describePlan(
  previous: ServicePlan | undefined,
  current: ServicePlan | undefined,
): readonly string[] {
  if (!current) return [];
  if (!previous) return [verdictText(current.internal)];
  const words = [...verdictWords(previous, current), ...addressWords(previous, current)];
  if (words.length > 0) return limited(words);
  return limited([
    ...changeOf("known endpoints", [previous.endpoints.length, current.endpoints.length]),
    ...(previous.endpoints === current.endpoints ? [] : ["conditions of endpoints"]),
  ]);
}

/** Returns e.g. `3 endpoints`, `refuses` or `drops`. */
function verdictText(verdict: Verdict): string {
  if (verdict.kind === "reject") return "refuses";
  if (verdict.kind === "drop") return "drops";
  const { length } = verdict.endpoints;
  return length === 1 ? "1 endpoint" : `${length} endpoints`;
}

function verdictWords(previous: ServicePlan, current: ServicePlan): readonly string[] {
  const inside = verdictChange("", [previous.internal, current.internal]);
  const outside = verdictChange("from outside: ", [previous.external, current.external]);
  // Traffic from inside and outside mostly has the same endpoints; they are named once.
  const isSame = outside.length === inside.length &&
    outside.every((word, index) => word === `from outside: ${inside[index]}`);
  return isExternal(previous) && isExternal(current) && !isSame ? [...inside, ...outside] : inside;
}

function verdictChange(
  label: string,
  [before, after]: readonly [Verdict, Verdict],
): readonly string[] {
  const [old, now] = [verdictText(before), verdictText(after)];
  const counts = old === now ? [] : [`${label}${old} -> ${now}`];
  const [was, is] = [endpointKeys(before), endpointKeys(after)];
  if (Math.max(was.length, is.length) > MOST_COMPARED) return counts;
  return [...counts, ...itemChanges(`${label}endpoint`, [was, is])];
}

function endpointKeys(verdict: Verdict): readonly string[] {
  return verdict.kind === "forward" ? verdict.endpoints.map(({ key }) => key) : [];
}

/** The source addresses that endpoints see from clients of the cluster IP. */
const INTERNAL_SOURCES = {
  all: "hidden behind this node's",
  "off-cluster": "of pods kept, others hidden behind this node's",
  none: "kept",
} as const;

/** The same for node ports, external IPs and load balancers. */
const EXTERNAL_SOURCES = { all: "hidden behind this node's", "from-node": "kept" } as const;

function addressWords(previous: ServicePlan, current: ServicePlan): readonly string[] {
  return [
    ...changeOf("cluster IP", [previous.clusterIp, current.clusterIp]),
    ...changeOf("port", [previous.port, current.port]),
    ...changeOf("node port", [previous.nodePort, current.nodePort]),
    ...itemChanges("external IP", [previous.externalIps, current.externalIps]),
    ...itemChanges("load balancer address", [previous.loadBalancerVips, current.loadBalancerVips]),
    ...itemChanges("source range", [previous.sourceRanges ?? [], current.sourceRanges ?? []]),
    ...changeOf("affinity", [secondsText(previous), secondsText(current)]),
    ...changeOf("addresses of clients:", [
      INTERNAL_SOURCES[previous.masqueradeInternal],
      INTERNAL_SOURCES[current.masqueradeInternal],
    ]),
    ...changeOf("addresses of clients outside:", [
      EXTERNAL_SOURCES[masqueradeExternal(previous)],
      EXTERNAL_SOURCES[masqueradeExternal(current)],
    ]),
    ...changeOf("health check port", [previous.healthCheckNodePort, current.healthCheckNodePort]),
    ...itemChanges("setting", [settingsOf(previous), settingsOf(current)]),
  ];
}

function settingsOf({ edge }: ServicePlan): readonly string[] {
  return edge ? describeEdgeSettings(edge) : [];
}

function secondsText({ affinityTimeoutSeconds: seconds }: ServicePlan): string | undefined {
  return seconds === undefined ? undefined : `${seconds} s`;
}

type Pair<Value> = readonly [before: Value, after: Value];

/** Returns e.g. `type ClusterIP -> NodePort`; nothing if both are the same. */
function changeOf(label: string, [before, after]: Pair<unknown>): readonly string[] {
  if (before === after) return [];
  return [shortened(`${label} ${before ?? "none"} -> ${after ?? "none"}`)];
}

/** Returns e.g. `external IP 203.0.113.1 new` and `… gone`; many items are counted. */
function itemChanges(
  label: string,
  [before, after]: Pair<readonly string[]>,
): readonly string[] {
  const [old, now] = [new Set(before), new Set(after)];
  return [
    ...named(label, "gone", [...old].filter((item) => !now.has(item))),
    ...named(label, "new", [...now].filter((item) => !old.has(item))),
  ];
}

/** Returns at most 8 short words. */
function limited(words: readonly string[]): readonly string[] {
  const shown = words.slice(0, MOST_WORDS).map(shortened);
  const more = words.length - shown.length;
  return more > 0 ? [...shown, `${more} more`] : shown;
}

/** Returns at most 120 characters of a text. */
export function shortened(text: string): string {
  return text.length <= LONGEST ? text : `${text.slice(0, LONGEST - 1)}\u2026`;
}

function named(label: string, what: string, items: readonly string[]): readonly string[] {
  const shown = items.slice(0, MOST_ITEMS).map((item) => `${label} ${item} ${what}`);
  const more = items.length - shown.length;
  return more > 0 ? [...shown, `${more} more ${what}`] : shown;
}
