/**
 * What a node says of itself in its member Lease: which pools of layer 2 it knows, and in which
 * networks it can answer. Every node decides by these words and not by its own configuration, so all
 * find the same owner even while their configurations differ.
 *
 * @module
 */
import * as v from "valibot";
import {
  type AddressRange,
  joinRanges,
  overlap,
  rangeOf,
  tryParseAddressRange,
} from "../net/address_range.ts";
import { type Cidr, tryParseCidr } from "../net/cidr.ts";
import { addressAt, addressNumber, type IpAddress, ipFamilyOf } from "../net/ip_address.ts";
import { hashText } from "../net/text_hash.ts";
import { matchesLabels } from "../policy/label_selector.ts";
import type { AddressPool } from "./address_pool.ts";
import type { RoutingNode } from "./routing_node.ts";

/** Why an interface does not carry packets. */
export type LinkObstacle = "absent" | "down" | "no-carrier";

/** A network in which a node answers for addresses, by one interface. */
export interface NodeLink {
  readonly network: Cidr;
  readonly device: string;
  /** Absent = it can answer. */
  readonly obstacle?: LinkObstacle;
}

/** The report of a node. */
export interface MemberReport {
  readonly json: ReportJson;
  /** Absent if there are too many ranges: the node then counts as knowing every pool. */
  readonly pools?: readonly {
    readonly name: string;
    readonly ranges: readonly AddressRange[];
    /** Whether the nodeSelector of the pool matches the Node. */
    readonly isSelected: boolean;
    /** Differs if the nodeSelector does. */
    readonly selector: string;
  }[];
  readonly links: readonly (NodeLink & { readonly range: AddressRange })[];
}

const OBSTACLES: readonly LinkObstacle[] = ["absent", "down", "no-carrier"];
/** An object of the API may have 256 KiB of annotations, and every node keeps those of all. */
const LONGEST = 32 * 1024;

/** The report as JSON has it; dumps have it too. */
export const REPORT_SCHEMA = v.object({
  pools: v.optional(v.array(v.object({
    name: v.pipe(v.string(), v.regex(/^[-a-z0-9]{1,63}$/)),
    ranges: v.array(v.pipe(v.string(), v.regex(/^[0-9a-f.:]+-[0-9a-f.:]+$/))),
    selected: v.boolean(),
    selector: v.pipe(v.string(), v.regex(/^[0-9a-z]{0,16}$/)),
  }))),
  links: v.array(v.object({
    network: v.pipe(v.string(), v.regex(/^[0-9a-f.:]+\/\d+$/)),
    // The kernel has other letters in names, too, and bytes that are none.
    device: v.pipe(v.string(), v.regex(/^\S{1,15}$/u)),
    obstacle: v.optional(v.picklist(OBSTACLES)),
  })),
});

/** A report as JSON. */
export type ReportJson = v.InferOutput<typeof REPORT_SCHEMA>;

/** Returns what a node says. Only networks with addresses of its pools are named. */
export function memberReport(
  all: readonly AddressPool[],
  { node, links }: { readonly node: RoutingNode; readonly links: readonly NodeLink[] },
): ReportJson {
  const pools = all.filter(({ announce }) => announce === "layer2");
  const isUsed = ({ network }: NodeLink) => {
    const range = rangeOf(network);
    return pools.some(({ ranges }) => ranges.some((each) => overlap(each, range)));
  };
  const named = links.filter(isUsed)
    .map(({ network, device, obstacle }) => ({
      ...{ network, device },
      ...(obstacle && { obstacle }),
    }));
  const report: ReportJson = {
    pools: pools.map(({ name, ranges, nodeSelector }) => ({
      name,
      // Other nodes may have the same addresses in other blocks.
      ranges: joinRanges(ranges).map(({ family, first, last }) =>
        `${addressAt(first, family)}-${addressAt(last, family)}`
      ),
      selected: nodeSelector === undefined || matchesLabels(nodeSelector, node.labels),
      selector: nodeSelector === undefined ? "" : (hashText(nodeSelector.text) >>> 0).toString(36),
    })),
    links: named.sort((a, b) => `${a.network} ${a.device}` < `${b.network} ${b.device}` ? -1 : 1),
  };
  return JSON.stringify(report).length <= LONGEST ? report : { links: report.links };
}

/**
 * Reads a report; `undefined` = there is none, or none that can be read. Such a node counts as able to
 * answer for every address.
 */
export function parseMemberReport(text: string | undefined): MemberReport | undefined {
  if (text === undefined || text.length > 2 * LONGEST) return undefined;
  let raw: unknown;
  try {
    raw = JSON.parse(text);
  } catch {
    return undefined;
  }
  return readMemberReport(raw);
}

/** As {@linkcode parseMemberReport}, of JSON that was parsed. */
export function readMemberReport(raw: unknown): MemberReport | undefined {
  const { success, output } = v.safeParse(REPORT_SCHEMA, raw);
  if (!success) return undefined;
  const { pools, links } = output;
  return {
    json: output,
    ...(pools && {
      pools: pools.map(({ name, ranges, selected: isSelected, selector }) => ({
        ...{ name, isSelected, selector },
        ranges: ranges.flatMap((range) => tryParseAddressRange(range) ?? []),
      })),
    }),
    links: links.flatMap(({ network: given, device, obstacle }) => {
      const network = tryParseCidr(given);
      if (network === undefined) return [];
      const range = rangeOf(network);
      return [{ network, device, range, ...(obstacle && { obstacle }) }];
    }),
  };
}

/** Why a node cannot answer for an address, by its own report; `undefined` = it can. */
export function reportedObstacle(
  { pools, links }: MemberReport,
  address: IpAddress,
): string | undefined {
  const [family, number] = [ipFamilyOf(address), addressNumber(address)];
  const isIn = (range: AddressRange) =>
    range.family === family && range.first <= number && number <= range.last;
  const pool = pools?.find(({ ranges }) => ranges.some(isIn));
  if (pools && !pool) return "its configuration has no pool of layer 2 with the address";
  if (pool?.isSelected === false) return "the nodeSelector of the pool does not match the Node";
  const found = links.filter(({ range }) => isIn(range));
  if (found.length === 0) return "no interface of it has a network with the address";
  if (found.some(({ obstacle }) => obstacle === undefined)) return undefined;
  return found.map(linkText).join(", ");
}

/** Describes a link that does not carry packets. */
export function linkText({ device, obstacle }: Pick<NodeLink, "device" | "obstacle">): string {
  if (obstacle === "no-carrier") return `its interface ${device} has no carrier`;
  return obstacle === "down"
    ? `its interface ${device} is down`
    : `it has no interface ${device} with an address`;
}

/** The pools of which a node could answer for no address, because it is in none of their networks. */
export function poolsElsewhere({ pools = [], links }: MemberReport): readonly string[] {
  return pools.filter(({ ranges, isSelected }) =>
    isSelected && !links.some(({ range }) => ranges.some((each) => overlap(each, range)))
  ).map(({ name }) => name);
}

/** How the pools of another node differ from the own ones, in words. */
export function poolDifferences(own: MemberReport, other: MemberReport): readonly string[] {
  if (!own.pools || !other.pools) return [];
  const pools = [own.pools, other.pools].map((all) =>
    new Map(all.map((each) => [each.name, each]))
  );
  const [here, there] = pools as [typeof pools[0], typeof pools[0]];
  const rangesOf = (name: string, of: typeof here) =>
    of.get(name)!.ranges.map(({ family, first, last }) => `${family} ${first}-${last}`).join();
  return [...new Set([...here.keys(), ...there.keys()])].sort().flatMap((name) => {
    if (!there.has(name)) return `it has no pool '${name}'`;
    if (!here.has(name)) return `only it has pool '${name}'`;
    if (rangesOf(name, here) !== rangesOf(name, there)) {
      return `its pool '${name}' has other addresses`;
    }
    return here.get(name)!.selector === there.get(name)!.selector
      ? []
      : `its pool '${name}' has another nodeSelector`;
  });
}
