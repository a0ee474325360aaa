import { didYouMean } from "../api/nearest_name.ts";
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
import {
  DEFAULT_POOL,
  type PoolConfiguration,
  ROUTING_CHOICES,
  type RoutingConfiguration,
  type SelectorConfiguration,
} from "./routing.ts";

const NAME = /^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/;

/** A range and its place in the configuration. */
interface PlacedRange extends AddressRange {
  readonly path: string;
  readonly pool: string;
  readonly text: string;
}

/** Parses the pools and reports each invalid value. */
export function parsePools(routing: RoutingConfiguration, expect: Expect): readonly AddressPool[] {
  const ranges: PlacedRange[] = [];
  const pools = new Map<string, AddressPool>();
  for (const [index, given] of routing.pools.entries()) {
    const path = `routing.pools.${index}`;
    const isText = typeof given === "string";
    const pool = isText ? poolOfText(given) : given;
    const { name, addresses } = pool;
    expect(
      NAME.test(name),
      isText ? path : `${path}.name`,
      "Expected a name of at most 63 small letters, digits and '-', with a letter or digit at both " +
        `ends, found '${name}'`,
    );
    const known = pools.get(name);
    expect(known === undefined || isText, path, `Expected each pool once, found '${name}' again`);
    expect(addresses.length > 0, `${path}.addresses`, "Expected at least one range, found none");
    const own = addresses.flatMap((text, index) => {
      const place = isText ? path : `${path}.addresses.${index}`;
      const range = parseRange(text, place, expect);
      return range ? [{ ...range, path: place, pool: name, text }] : [];
    });
    for (const range of own) ranges.push(range);
    const plain = own.map(({ family, first, last }) => ({ family, first, last }));
    pools.set(name, {
      ...known ?? parsePool(pool, routing, path, expect),
      ranges: [...known?.ranges ?? [], ...plain],
    });
  }
  checkOverlaps(ranges, expect);
  return [...pools.values()];
}

/** Parses `NAME=ADDRESSES` or `ADDRESSES`. */
function poolOfText(text: string): PoolConfiguration {
  const equals = text.indexOf("=");
  return {
    ...DEFAULT_POOL,
    ...(equals >= 0 && { name: text.slice(0, equals).trim() }),
    addresses: [text.slice(equals + 1).trim()],
  };
}

function parseRange(text: string, path: string, expect: Expect): AddressRange | undefined {
  const range = tryParseAddressRange(text);
  expect(
    range !== undefined,
    path,
    `Expected a CIDR such as 192.0.2.0/24 or a range such as 192.0.2.10-192.0.2.20, found '${text}'`,
  );
  expect(
    range === undefined || !UNUSABLE_RANGES.some((other) => overlap(range, other)),
    path,
    "Expected addresses that are not unspecified, loopback, link-local, multicast or reserved, " +
      `found '${text}'`,
  );
  return range;
}

/** An address in two pools would have two rules. */
function checkOverlaps(ranges: readonly PlacedRange[], expect: Expect): void {
  const sorted = ranges.toSorted((left, right) =>
    left.family.localeCompare(right.family) || (left.first < right.first ? -1 : 1)
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
  routing: RoutingConfiguration,
  path: string,
  expect: Expect,
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
    const selector = parseSelector(selectors[field], `${path}.${field}`, expect);
    if (selector) found[field] = selector;
  }
  return { name, autoAssign, announce: announce as AnnounceMethod, ...found };
}

/** Parses a selector; `undefined` stands for one that selects everything. */
export function parseSelector(
  selector: SelectorConfiguration | null | undefined,
  path: string,
  expect: Expect,
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
  const expressions = matchExpressions
    .map(({ key, operator, values }) => ({ key, operator, ...(values && { values }) }));
  return parseLabelSelector(
    { ...(matchLabels && { matchLabels }), matchExpressions: expressions },
    { path, problems: new ProblemCollector("KubeProxyConfiguration", path) },
  );
}
