/**
 * Sets of `ipset`, of any name, type and owner, as the lines that `ipset restore` takes and
 * `ipset save` prints. Pure.
 *
 * @module
 */
import { tryParseCidr } from "../../../lib/net/cidr.ts";
import { type IpFamily, tryParseIpAddress } from "../../../lib/net/ip_address.ts";

/** The types of sets, with an example of an entry of each. */
export type SetType =
  /** `10.0.0.1` */
  | "hash:ip"
  /** `10.0.0.0/8`, or `10.0.0.0/8 nomatch` for a block that is taken out of a larger one */
  | "hash:net"
  /** `10.0.0.1,tcp:80` */
  | "hash:ip,port"
  /** `10.0.0.1,tcp:80,10.0.0.1` */
  | "hash:ip,port,ip"
  /** `10.0.0.1,tcp:80,10.0.0.0/8` */
  | "hash:ip,port,net"
  /** `30080` */
  | "bitmap:port";

/** A set as it was printed. */
export interface SavedSet {
  /**
   * Its type, family and bounds, without properties that the kernel chose, such as its current
   * size.
   */
  readonly options: string;
  readonly entries: ReadonlySet<string>;
}

const NO_MATCH = / nomatch$/;
/** Lines between two pauses. */
const LINES_PER_STEP = 256;
/** Options that the kernel prints although kube-relay does not set them. */
const OWN_OPTIONS = new Set(["hashsize", "bucketsize", "initval"]);
/** IPSET_MAXNAMELEN less the final zero. */
export const MAX_SET_NAME_LENGTH = 31;

/** Type and options of a set, as `ipset create` takes them. */
export function createOptions(
  type: SetType,
  { family, maxEntries }: { readonly family: IpFamily; readonly maxEntries: number },
): string {
  if (type === "bitmap:port") return "bitmap:port range 0-65535";
  const name = family === "IPv4" ? "inet" : "inet6";
  return `${type} family ${name} hashsize 1024 maxelem ${maxEntries}`;
}

/** The line that creates a set. One of these options may exist. */
export function createLine(name: string, options: string): string {
  return `create ${name} ${options} -exist`;
}

/** The line that destroys a set, which no rule may refer to. */
export function destroyLine(name: string): string {
  return `destroy ${name}`;
}

/** The line that adds an entry, which may exist. */
export function addLine(name: string, entry: string): string {
  return `add ${name} ${entry} -exist`;
}

/** The line that deletes an entry, which may no longer exist. It takes no options of the entry. */
export function deleteLine(name: string, entry: string): string {
  return `del ${name} ${entryKey(entry)} -exist`;
}

/** An entry without its option. A set has at most one entry of each key. */
export function entryKey(entry: string): string {
  return entry.replace(NO_MATCH, "");
}

/**
 * Returns the lines that replace a set with other options, even while rules refer to it. A scratch
 * set of a killed run is emptied; if it has other options, the first line fails.
 */
export function replaceLines(
  name: string,
  { options, entries }: { readonly options: string; readonly entries: Iterable<string> },
): readonly string[] {
  const scratch = scratchName(name);
  return [
    createLine(scratch, options),
    `flush ${scratch}`,
    ...[...entries].map((entry) => addLine(scratch, entry)),
    `swap ${scratch} ${name}`,
    destroyLine(scratch),
  ];
}

/** Returns the name of the set that is to replace another one. */
export function scratchName(name: string): string {
  return `NEW-${name}`.slice(0, MAX_SET_NAME_LENGTH);
}

/**
 * Whether two sets, by their options, have the same type and family. The kernel swaps only such
 * sets.
 */
export function canBeSwapped(one: string, other: string): boolean {
  const kindOf = (options: string) => /^\S+(?: family \S+)?/.exec(options)?.[0];
  return kindOf(one) === kindOf(other);
}

/** Reads `ipset save` in short steps: all sets that `isWanted`, by name. Other lines are skipped. */
export function* readIpsetSave(
  text: string,
  isWanted: (name: string) => boolean,
): Generator<void, ReadonlyMap<string, SavedSet>> {
  const sets = new Map<string, { readonly options: string; readonly entries: Set<string> }>();
  let count = 0;
  for (const line of text.split("\n")) {
    if (++count % LINES_PER_STEP === 0) yield;
    const [verb, name = "", ...words] = line.trim().split(/\s+/);
    if (verb === "create" && words.length > 0 && isWanted(name)) {
      sets.set(name, { options: normalOptions(words.join(" ")), entries: new Set() });
    } else if (verb === "add" && words[0] !== undefined) {
      sets.get(name)?.entries.add(
        normalEntry(words[1] === "nomatch" ? `${words[0]} nomatch` : words[0]),
      );
    }
  }
  return sets;
}

/** Options as they may be compared. */
export function normalOptions(options: string): string {
  const [type = "", ...words] = options.split(" ");
  const kept: string[] = [];
  for (let at = 0; at < words.length; at += 2) {
    const [name = "", value = ""] = words.slice(at, at + 2);
    if (!OWN_OPTIONS.has(name) && name !== "-exist") kept.push(`${name} ${value}`);
  }
  return [type, ...kept.sort()].join(" ");
}

/** An entry in the spelling of {@linkcode addLine}'s callers: the tool prints addresses by other rules. */
function normalEntry(entry: string): string {
  const [, key = entry, option = ""] = /^(\S+)( nomatch)?$/.exec(entry) ?? [];
  const parts = key.split(",").map((part) => {
    const cidr = part.includes("/") ? tryParseCidr(part) : undefined;
    return cidr === undefined ? tryParseIpAddress(part) ?? part : entryOfCidr(cidr);
  });
  return parts.join(",") + option;
}

/** A range as a part of an entry: the tool prints no length where it is the whole address. */
export function entryOfCidr(cidr: string): string {
  return cidr.replace(cidr.includes(":") ? /\/128$/ : /\/32$/, "");
}
