/**
 * What `ipset restore` takes and `ipset save` prints. Pure.
 *
 * @module
 */
import { MAX_SET_NAME_LENGTH } from "./ipset_table.ts";
import { tryParseCidr } from "../../lib/net/cidr.ts";
import { tryParseIpAddress } from "../../lib/net/ip_address.ts";

/** A set as it was printed. */
export interface SavedSet {
  /** Its type, family and bounds, without what the kernel chose itself, as its size now. */
  readonly options: string;
  readonly entries: ReadonlySet<string>;
}

/** Lines between two pauses. */
const LINES_PER_STEP = 256;
/** Where the kernel prints more than was asked for. */
const OWN_OPTIONS = new Set(["hashsize", "bucketsize", "initval"]);

/** The line that creates a set. One of these options may be there. */
export function createLine(name: string, options: string): string {
  return `create ${name} ${options} -exist`;
}

/** The line that adds an entry, which may be there. */
export function addLine(name: string, entry: string): string {
  return `add ${name} ${entry} -exist`;
}

/** The line that takes an entry away, which may be gone. */
export function deleteLine(name: string, entry: string): string {
  return `del ${name} ${entry} -exist`;
}

/**
 * The lines that put a new set in the place of one that has other options, even while rules name it. A
 * scratch set that a killed run left is emptied; one of other options fails the first line.
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
    `destroy ${scratch}`,
  ];
}

/** The name of the set that takes the place of another one. */
export function scratchName(name: string): string {
  return `NEW-${name}`.slice(0, MAX_SET_NAME_LENGTH);
}

/** Reads `ipset save` in short steps: all sets that `isWanted`, by name. Other lines are passed over. */
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
      sets.get(name)?.entries.add(normalEntry(words[0]));
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

/** An entry as we write it: the tool prints addresses by another library's rules. */
export function normalEntry(entry: string): string {
  return entry.split(",").map((part) => {
    const cidr = part.includes("/") ? tryParseCidr(part) : undefined;
    return cidr === undefined ? tryParseIpAddress(part) ?? part : entryOfCidr(cidr);
  }).join(",");
}

/** A range as a part of an entry: the tool prints no length where it is the whole address. */
export function entryOfCidr(cidr: string): string {
  return cidr.replace(cidr.includes(":") ? /\/128$/ : /\/32$/, "");
}
