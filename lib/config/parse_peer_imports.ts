import { type Cidr, cidrFamilyOf, prefixLengthOf } from "../net/cidr.ts";
import type { IpFamily } from "../net/ip_address.ts";
import { type ImportedPrefix, LONGEST_PREFIX, type PeerImports } from "../routing/bgp_plan.ts";
import { checkCidr, type Expect } from "./expectation.ts";
import type { ImportedPrefixConfiguration, PeerImportConfiguration } from "./routing.ts";

/** A place in the configuration, and the family of the peer's address. */
interface Place {
  readonly path: string;
  readonly expect: Expect;
  readonly family: IpFamily;
}

/** Parses what is accepted from a peer and reports each invalid value. */
export function parsePeerImports(
  { prefixes, clusterPrefixes, defaultRoute }: PeerImportConfiguration,
  { path, ...place }: Place,
): PeerImports {
  return {
    prefixes: parseRanges(prefixes, { path: `${path}.prefixes`, ...place }),
    clusterPrefixes: parseRanges(clusterPrefixes, { path: `${path}.clusterPrefixes`, ...place }),
    defaultRoute,
  };
}

function parseRanges(
  given: PeerImportConfiguration["prefixes"],
  { path, ...place }: Place,
): readonly ImportedPrefix[] {
  return given.flatMap((entry, index) => {
    const isText = typeof entry === "string";
    const at = `${path}.${index}`;
    const text = isText ? entry : entry.prefix;
    const prefix = parsePrefix(text, { path: isText ? at : `${at}.prefix`, ...place });
    if (!prefix) return [];
    const lengths = isText ? { minLength: 0, maxLength: 0 } : entry;
    return [{ prefix, ...parseLengths(lengths, { path: at, prefix, ...place }) }];
  });
}

/** A session carries the prefixes of the family of its addresses. */
function parsePrefix(text: string, { path, expect, family }: Place): Cidr | undefined {
  const prefix = checkCidr(expect, path, text);
  const isUsable = prefix !== undefined && cidrFamilyOf(prefix) === family;
  expect(
    prefix === undefined || isUsable,
    path,
    `Expected an ${family} prefix, as the address of the peer, found '${text}'`,
  );
  return isUsable ? prefix : undefined;
}

function parseLengths(
  { minLength, maxLength }: Omit<ImportedPrefixConfiguration, "prefix">,
  { path, expect, family, prefix }: Place & { readonly prefix: Cidr },
): Omit<ImportedPrefix, "prefix"> {
  const [own, longest] = [prefixLengthOf(prefix), LONGEST_PREFIX[family]];
  expect(
    own > 0 || minLength > 0,
    path,
    `Expected a minLength of 1 or more for ${prefix}, found none; set defaultRoute to accept a ` +
      "default route",
  );
  expect(
    minLength === 0 || minLength >= own && minLength <= longest,
    `${path}.minLength`,
    `Expected a number from ${own} to ${longest} for ${prefix}, found ${minLength}`,
  );
  const least = Math.max(own, minLength);
  expect(
    maxLength === 0 || maxLength >= least && maxLength <= longest,
    `${path}.maxLength`,
    `Expected a number from ${least} to ${longest} for ${prefix}, found ${maxLength}`,
  );
  return { minLength: least, maxLength: maxLength || longest };
}
