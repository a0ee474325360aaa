import { ProblemCollector } from "../api/problem_collector.ts";
import { type AddressRange, tryParseAddressRange } from "../net/address_range.ts";
import { type LabelSelector, parseLabelSelector } from "../policy/label_selector.ts";
import {
  type AddressPool,
  type AnnounceMethod,
  overlap,
  UNUSABLE_RANGES,
} from "../routing/address_pool.ts";
import type { Expect } from "./expectation.ts";
import { didYouMean } from "../api/nearest_name.ts";
import {
  type PoolConfiguration,
  ROUTING_CHOICES,
  type RoutingConfiguration,
  type SelectorConfiguration,
} from "./routing.ts";
import { DEFAULT_POOL } from "./routing.ts";

const NAME = /^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/;

/** A range and its place in the configuration. */
interface PlacedRange extends AddressRange {
  readonly path: string;
  readonly pool: string;
  readonly text: string;
}

/** Parses the pools and reports each invalid value. */
export function parsePools(
  routing: RoutingConfiguration,
  expect: Expect,
): readonly AddressPool[] {
  const ranges: PlacedRange[] = [];
  const pools = new Map<string, AddressPool>();
  for (const [index, given] of routing.pools.entries()) {
    const path = `routing.pools.${index}`;
    const isText = typeof given === "string";
    const configuration = isText ? poolOfText(given) : given;
    const { name } = configuration;
    expect(
      NAME.test(name),
      isText ? path : `${path}.name`,
      "Expected a name of at most 63 small letters, digits and '-', with a letter or digit at both " +
        `ends, found '${name}'`,
    );
    const known = pools.get(name);
    expect(known === undefined || isText, path, `Expected each pool once, found '${name}' again`);
    const own = parseRanges(configuration, { path, isText, expect });
    for (const range of own) ranges.push(range);
    const pool = known ?? parsePool(configuration, { path, expect, routing });
    pools.set(name, { ...pool, ranges: [...known?.ranges ?? [], ...own.map(plainRange)] });
  }
  checkOverlaps(ranges, expect);
  return [...pools.values()];
}

/** Parses `NAME=ADDRESSES` or `ADDRESSES`. */
function poolOfText(text: string): PoolConfiguration {
  const equals = text.indexOf("=");
  const addresses = [text.slice(equals + 1).trim()];
  return equals < 0
    ? { ...DEFAULT_POOL, addresses }
    : { ...DEFAULT_POOL, name: text.slice(0, equals).trim(), addresses };
}

function plainRange({ family, first, last }: PlacedRange): AddressRange {
  return { family, first, last };
}

function parseRanges(
  { name, addresses }: PoolConfiguration,
  { path, isText, expect }: {
    readonly path: string;
    readonly isText: boolean;
    readonly expect: Expect;
  },
): readonly PlacedRange[] {
  expect(addresses.length > 0, `${path}.addresses`, "Expected at least one range, found none");
  return addresses.flatMap((text, index) => {
    const place = isText ? path : `${path}.addresses.${index}`;
    const range = tryParseAddressRange(text);
    expect(
      range !== undefined,
      place,
      `Expected a CIDR such as 192.0.2.0/24 or a range such as 192.0.2.10-192.0.2.20, found '${text}'`,
    );
    if (range === undefined) return [];
    expect(
      !UNUSABLE_RANGES.some((other) => overlap(range, other)),
      place,
      "Expected addresses that are not unspecified, loopback, link-local, multicast or reserved, " +
        `found '${text}'`,
    );
    return [{ ...range, path: place, pool: name, text }];
  });
}

/** An address in two pools would have two rules. */
function checkOverlaps(ranges: readonly PlacedRange[], expect: Expect): void {
  const sorted = ranges.toSorted((left, right) =>
    left.family !== right.family
      ? left.family < right.family ? -1 : 1
      : left.first < right.first
      ? -1
      : 1
  );
  let widest: PlacedRange | undefined;
  for (const range of sorted) {
    if (widest && overlap(widest, range)) {
      expect(
        false,
        range.path,
        `Expected addresses that no other range has, found '${range.text}', which overlaps ` +
          `'${widest.text}' of pool '${widest.pool}'`,
      );
      if (range.last <= widest.last) continue;
    }
    widest = range;
  }
}

function parsePool(
  { name, autoAssign, announce: given, ...selectors }: PoolConfiguration,
  { path, expect, routing }: {
    readonly path: string;
    readonly expect: Expect;
    readonly routing: RoutingConfiguration;
  },
): Omit<AddressPool, "ranges"> {
  const announce = given === "" ? routing.announce : given;
  const field = given === "" ? "routing.announce" : `${path}.announce`;
  const choices: readonly string[] = ROUTING_CHOICES.announce;
  expect(
    choices.includes(announce),
    field,
    `Expected one of ${choices.join(", ")}, found '${announce}'${didYouMean(announce, choices)}`,
  );
  expect(
    announce !== "bgp" || routing.bgp.enabled,
    field,
    "Expected layer2 or none, since routing.bgp.enabled is false; found 'bgp'",
  );
  const found: Record<string, LabelSelector> = {};
  for (const field of ["namespaceSelector", "serviceSelector", "nodeSelector"] as const) {
    const selector = parseSelector(selectors[field], { path: `${path}.${field}`, expect });
    if (selector) found[field] = selector;
  }
  return { name, autoAssign, announce: announce as AnnounceMethod, ...found };
}

/** Parses a selector; `undefined` stands for one that selects everything. */
export function parseSelector(
  selector: SelectorConfiguration | null | undefined,
  { path, expect }: { readonly path: string; readonly expect: Expect },
): LabelSelector | undefined {
  if (!selector) return undefined;
  const { matchLabels, matchExpressions = [] } = selector;
  for (const [index, { operator, values = [] }] of matchExpressions.entries()) {
    const needsValues = operator === "In" || operator === "NotIn";
    expect(
      needsValues === values.length > 0,
      `${path}.matchExpressions.${index}.values`,
      needsValues
        ? `Expected at least one value for the operator ${operator}, found none`
        : `Expected nothing for the operator ${operator}, found values`,
    );
  }
  const problems = new ProblemCollector("KubeProxyConfiguration", path);
  return parseLabelSelector(
    { ...(matchLabels && { matchLabels }), matchExpressions: matchExpressions.map(asRead) },
    { path, problems },
  );
}

function asRead(
  { key, operator, values }: NonNullable<SelectorConfiguration["matchExpressions"]>[number],
) {
  return { key, operator, ...(values && { values }) };
}
