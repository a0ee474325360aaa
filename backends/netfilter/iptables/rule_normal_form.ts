/**
 * One spelling for rules that mean the same: tools print other words than they were given
 * (`--or-mark` comes back as `--set-xmark`, a probability in 11 decimals, an address with `/32`).
 * Pure.
 *
 * This form is only for comparisons; it is never written. Two that differ may still mean the same, as
 * with an unknown release of the tool: then a chain is written once more than needed.
 *
 * @module
 */
import { splitWords } from "./iptables_objects.ts";
import { withUndottedAddresses } from "../undotted_address.ts";
import type { DataPlaneDifference } from "../../../lib/proxy/data_plane.ts";
import { compareLists } from "../../../lib/proxy/compare_lists.ts";

/** An option and its values, e.g. `--mark 0x4000/0x4000`, with `! ` in front where it is turned round. */
type Option = readonly [name: string, value: string];

/** A match extension, or the target, with its options. */
interface Part {
  readonly name: string;
  readonly options: Option[];
}

interface ParsedRule {
  /** Options that belong to no extension: `-s`, `-d`, `-i`, `-o`, `-p`. */
  readonly base: Option[];
  readonly matches: Part[];
  comment?: string;
  target?: Part;
}

const BASE_OPTION = /^-[sdiop]$/;
/** With them come the ports, which may stand anywhere. */
const PROTOCOL_MATCH = /^(tcp|udp|sctp)$/;
/** Options that the tools add although they are the default. */
const IMPLIED =
  /^(--rsource|--mask (255\.255\.255\.255|ffff(:ffff){7})|--reject-with icmp6?-port-unreachable)$/;
/** The kernel keeps a probability as 31 bits. */
const PROBABILITY_UNIT = 2 ** 31;

/**
 * Whether a printed rule means the same as a written one. If the tool prints in its most common
 * form, this costs a tenth of two normal forms.
 */
export function isSameRule(written: string, printed: string): boolean {
  return written === printed || usualPrint(written) === printed ||
    normalRule(written) === normalRule(printed);
}

/** Whether these rules mean the same, one by one. */
export function areSameRules(written: readonly string[], printed: readonly string[]): boolean {
  return written.length === printed.length &&
    written.every((rule, index) => isSameRule(rule, printed[index]!));
}

/** The spelling of a rule (without `-A` and its chain) by which it is compared. */
export function normalRule(text: string): string {
  const { base, matches, comment, target } = parseRule(splitWords(withUndottedAddresses(text)));
  const ports = matches.filter(({ name }) => PROTOCOL_MATCH.test(name));
  const others = matches.filter(({ name }) => !PROTOCOL_MATCH.test(name));
  const parts = [...base, ...ports.flatMap(({ options }) => options)].map(optionText).sort();
  for (const match of others) parts.push(`-m ${partText(match)}`);
  if (comment !== undefined) parts.push(`-m comment ${JSON.stringify(comment)}`);
  if (target) parts.push(partText(target));
  return parts.join(" ");
}

/** As both variants of iptables 1.8 print most rules. */
function usualPrint(written: string): string {
  return written
    .replace(/^-d (\S+) -s (\S+)(?= )/, "-s $2 -d $1")
    .replace(
      /^(?:-s (\S+) )?-d (\S+)(?= )/,
      (_, source: string | undefined, destination: string) =>
        `${source === undefined ? "" : `-s ${withLength(source)} `}-d ${withLength(destination)}`,
    )
    .replace(/-m (tcp|udp|sctp) -p \1 /, "-p $1 -m $1 ")
    .replace(/--probability (\S+)/, (_, probability: string) => {
      const units = Math.round(Number(probability) * PROBABILITY_UNIT);
      return `--probability ${(units / PROBABILITY_UNIT).toFixed(11)}`;
    });
}

function withLength(address: string): string {
  if (address.includes("/")) return address;
  return `${address}/${address.includes(":") ? 128 : 32}`;
}

function parseRule(words: readonly string[]): ParsedRule {
  const rule: ParsedRule = { base: [], matches: [] };
  let options = rule.base;
  let negation = "";
  for (let index = 0; index < words.length; index++) {
    const word = words[index]!;
    if (word === "!") {
      negation = "! ";
      continue;
    }
    if (word === "-m") {
      const part: Part = { name: words[++index] ?? "", options: [] };
      options = part.options;
      rule.matches.push(part);
    } else if (word === "-j" || word === "-g") {
      rule.target = { name: `${word} ${words[++index] ?? ""}`, options: [] };
      options = rule.target.options;
    } else {
      const values = valuesFrom(words, index + 1);
      index += values.length;
      const value = values.join(" ");
      if (word === "--comment") rule.comment = value;
      else (BASE_OPTION.test(word) ? rule.base : options).push([negation + word, value]);
    }
    negation = "";
  }
  const isComment = ({ name }: Part) => name === "comment";
  return { ...rule, matches: rule.matches.filter((part) => !isComment(part)) };
}

function valuesFrom(words: readonly string[], start: number): readonly string[] {
  let end = start;
  while (end < words.length && words[end] !== "!" && !words[end]!.startsWith("-")) end++;
  // A comment may begin with a dash.
  return words.slice(start, words[start - 1] === "--comment" ? start + 1 : end);
}

function partText({ name, options }: Part): string {
  const texts = options.map(optionText).filter((text) => !IMPLIED.test(text)).sort();
  return [name, ...texts].join(" ");
}

function optionText([name, value]: Option): string {
  switch (name.replace("! ", "")) {
    case "-s":
    case "-d":
    case "--ctorigdst":
      return `${name} ${value.replace(value.includes(":") ? /\/128$/ : /\/32$/, "")}`;
    case "--probability":
      return `${name} ${Math.round(Number(value) * PROBABILITY_UNIT)}`;
    case "--dport":
    case "--sport":
      return `${name} ${portsText(value)}`;
    case "--limit":
      return `${name} ${periodOf(value)}`;
    case "--ctstate":
      return `${name} ${value.split(",").sort().join(",")}`;
    case "--mark":
    case "--set-xmark":
      return `${name} ${maskedText(value)}`;
    case "--set-mark":
    case "--or-mark":
      return `--set-xmark ${maskedText(name === "--or-mark" ? `${value}/${value}` : value)}`;
    case "--xor-mark":
      return `--set-xmark ${maskedText(`${value}/0`)}`;
    default:
      return `${name} ${value}`.trimEnd();
  }
}

function portsText(value: string): string {
  if (!value.includes(":")) return value;
  const [first, last] = value.split(":");
  return first === last ? value.slice(0, first!.length) : `${first || 0}:${last || 65535}`;
}

/** The kernel keeps the time between two packets in 1/10000 s, and tools print the unit that fits it. */
function periodOf(rate: string): number {
  const [count, unit = ""] = rate.split("/");
  const seconds = { s: 1, m: 60, h: 3_600, d: 86_400 }[unit[0] ?? "s"] ?? 1;
  return Math.floor(seconds * 10_000 / Number(count));
}

function maskedText(value: string): string {
  const [mark, mask = "0xffffffff"] = value.split("/");
  return `${Number(mark)}/${Number(mask)}`;
}

/**
 * The differences of a chain, given as `table chain`, to its rules as the tool printed them: `found`;
 * `undefined` = there is no such chain. `owners` of the rules; `undefined` for shared ones.
 */
export function compareChain<Owner = never>(
  chain: string,
  rules: readonly string[],
  found: readonly string[] | undefined,
  owners: readonly (Owner | undefined)[] = [],
): readonly (Omit<DataPlaneDifference, "key"> & { readonly key?: Owner })[] {
  if (found === undefined) {
    const owner = owners.every((each) => each === owners[0]) ? owners[0] : undefined;
    return [{
      object: "chain",
      name: chain,
      kind: "missing",
      ...(owner !== undefined && { key: owner }),
      wanted: rules.join("\n") || "no rules",
    }];
  }
  if (areSameRules(rules, found)) return [];
  const differences = compareLists(rules.map(normalRule), found.map(normalRule));
  return differences.map(({ kind, ...place }) => {
    const owner = place.wanted === undefined ? undefined : owners[place.wanted];
    return {
      object: "rule",
      name: `${chain}, rule ${(place.wanted ?? place.found ?? 0) + 1}`,
      kind,
      ...(owner !== undefined && { key: owner }),
      ...(place.wanted !== undefined && { wanted: rules[place.wanted]! }),
      ...(place.found !== undefined && { found: found[place.found]! }),
    };
  });
}
