/**
 * Parses rules of nftables in the forms that Services and NetworkPolicy use. A new kind of rule has
 * to be added here. Pure.
 *
 * @module
 */

/** A part of a key, e.g. `ip daddr`. */
export type KeyPart =
  | { readonly kind: "source" | "destination" | "protocol" | "port" }
  | { readonly kind: "priority"; readonly mask: number }
  | { readonly kind: "random"; readonly count: number; readonly offset: number };

/** The key of a look-up. A hash in it is replaced by the parts that it is made from. */
export type Key = readonly KeyPart[];

/** One step of a rule. */
export type Statement =
  | {
    readonly kind: "in-range";
    readonly part: "destination" | "source";
    readonly value: string;
    readonly not: boolean;
  }
  | { readonly kind: "interface"; readonly name: string; readonly not: boolean }
  | { readonly kind: "local"; readonly part: "destination" | "source"; readonly not: boolean }
  | { readonly kind: "draw"; readonly count: number; readonly first: number }
  | { readonly kind: "member" | "no-member"; readonly key: Key; readonly container: string }
  | { readonly kind: "protocol"; readonly name: string }
  | { readonly kind: "ports"; readonly first: number; readonly last: number }
  /** A condition that the first packet of a connection with ports never meets. */
  | { readonly kind: "never" }
  /** A statement without effect on the packet. */
  | { readonly kind: "note" }
  | { readonly kind: "verdict-map"; readonly key: Key; readonly container: string }
  | { readonly kind: "dnat"; readonly key: Key; readonly container: string }
  | { readonly kind: "recall"; readonly key: Key; readonly container: string }
  | { readonly kind: "remember" | "forget"; readonly key: Key; readonly container: string }
  | { readonly kind: "was-dnat" | "has-slot" | "masquerade" }
  | { readonly kind: "priority-set" | "priority-or"; readonly value: number }
  | { readonly kind: "mark-set" | "mark-clear" | "marked"; readonly mark: number }
  | { readonly kind: "verdict"; readonly verdict: string };

const PART = String.raw`(?:ip6? [sd]addr|meta l4proto|th dport|meta priority|` +
  String.raw`numgen random mod \d+(?: offset \d+)?)`;
const KEY = String.raw`(?:${PART}(?: \. ${PART})*)`;
const MASKED = String.raw`meta priority and 0x[0-9a-f]+`;
const HASH = String.raw`jhash (${KEY}) mod 4294967295 seed 0x[0-9a-f]+`;
/** A part of the priority, and a client or two hashes of it. */
const CLIENT = String.raw`(${MASKED}) \. (?:(${KEY})|${HASH} \. ${HASH})`;

/** Each shape and its meaning, tried in this order. */
const SHAPES: readonly (readonly [RegExp, (...groups: string[]) => Statement])[] = [
  [/ip6? ([sd])addr (!= )?([0-9a-f:][0-9a-f.:/]*)(?= |$)/, (part, not, value) => ({
    kind: "in-range",
    part: end(part),
    value: value ?? "",
    not: not !== undefined,
  })],
  [/iifname (!= )?"([^"]+)"/, (not, name) => ({
    kind: "interface",
    name: name ?? "",
    not: not !== undefined,
  })],
  [/fib ([sd])addr type (!= )?local/, (part, not) => ({
    kind: "local",
    part: end(part),
    not: not !== undefined,
  })],
  [new RegExp(`(${KEY}) vmap @(\\S+)`), look("verdict-map")],
  [new RegExp(`(${KEY}) @(\\S+)`), look("member")],
  [new RegExp(`(${KEY}) != @(\\S+)`), look("no-member")],
  [/meta l4proto (tcp|udp|sctp)(?= |$)/, (name) => ({ kind: "protocol", name: name ?? "" })],
  [/th dport (\d+)(?:-(\d+))?(?= |$)/, (first, last = first) => ({
    kind: "ports",
    first: Number(first),
    last: Number(last),
  })],
  [/ct state (?:established,related(?= accept$)|invalid(?= drop$))/, () => ({ kind: "never" })],
  [/icmpv6 type 135-136 ip6 hoplimit 255(?= accept$)/, () => ({ kind: "never" })],
  // The first packet of a TCP connection always is one.
  [/tcp flags & \(fin\|syn\|rst\|ack\) == syn/, () => ({ kind: "note" })],
  // No walk knows where a packet leaves, or walks one that no address of a pod identifies.
  [/oifname "[^"]+"(?= .*(?:goto shared-link-\w+|port-unreachable)$)/, () => ({ kind: "never" })],
  [/fib daddr type broadcast(?= goto shared-link)/, () => ({ kind: "never" })],
  [/counter(?= goto deny$)/, () => ({ kind: "note" })],
  [/limit rate \d+\/minute log prefix "[^"]*" group \d+$/, () => ({ kind: "note" })],
  [new RegExp(`dnat ip6? addr \\. port to (${KEY}) map @(\\S+)`), look("dnat")],
  [new RegExp(`meta priority set (${KEY}) map @(\\S+)`), look("recall")],
  [
    new RegExp(`meta priority set ${CLIENT} map @(\\S+)`),
    (mask, key, hashed, again, container) =>
      ofClient("recall", [mask, key, hashed, again], container),
  ],
  [
    new RegExp(`update @(\\S+) \\{ ${CLIENT} timeout \\d+s : meta priority \\}`),
    (container, ...client) => ofClient("remember", client, container),
  ],
  [
    new RegExp(`delete @(\\S+) \\{ ${CLIENT} : meta priority \\}`),
    (container, ...client) => ofClient("forget", client, container),
  ],
  [/meta priority set numgen random mod (\d+) offset (\d+)(?= |$)/, (count, first) => ({
    kind: "draw",
    count: Number(count),
    first: Number(first),
  })],
  [/ct status dnat/, () => ({ kind: "was-dnat" })],
  [/meta priority and 0x80000000 != 0/, () => ({ kind: "has-slot" })],
  [/meta priority set (0x[0-9a-f]+|0)(?= |$)/, priority("priority-set")],
  [/meta priority set meta priority or (0x[0-9a-f]+)/, priority("priority-or")],
  [/meta mark set meta mark or (0x[0-9a-f]+)/, mark("mark-set")],
  [/meta mark set meta mark xor (0x[0-9a-f]+)/, mark("mark-clear")],
  [/meta mark and (0x[0-9a-f]+) == \1/, mark("marked")],
  [/masquerade fully-random$/, () => ({ kind: "masquerade" })],
  [
    /((?:goto|jump) \S+|accept|drop|reject|return)(?: with (?:tcp reset|icmp(?:v6)? type (?:admin-prohibited|port-unreachable)))?$/,
    (verdict) => ({ kind: "verdict", verdict: verdict ?? "" }),
  ],
];

const ANCHORED = SHAPES.map(([shape, meaning]) =>
  [new RegExp(`^${shape.source}`), meaning] as const
);

/** Returns the steps of a rule, in order. Throws a SyntaxError for whatever it does not know. */
export function parseNftRule(text: string): readonly Statement[] {
  const steps: Statement[] = [];
  let rest = text;
  while (rest !== "") {
    const step = firstStep(rest);
    if (step === undefined) {
      throw new SyntaxError(`Cannot read the rule '${text}': '${rest}' is not known`);
    }
    steps.push(step.statement);
    rest = rest.slice(step.length).trimStart();
  }
  return steps;
}

function firstStep(text: string): { statement: Statement; length: number } | undefined {
  for (const [shape, meaning] of ANCHORED) {
    const match = shape.exec(text);
    if (match) return { statement: meaning(...match.slice(1)), length: match[0].length };
  }
  return undefined;
}

function look(kind: "dnat" | "member" | "no-member" | "recall" | "verdict-map") {
  return (key = "", container = ""): Statement => ({ kind, key: parseKey(key), container });
}

/** The key of a client. Two hashes of the same parts stand for these parts. */
function ofClient(
  kind: "forget" | "recall" | "remember",
  [mask = "", key, hashed = "", again = ""]: readonly (string | undefined)[],
  container = "",
): Statement {
  if (key === undefined && hashed !== again) {
    throw new SyntaxError(`Cannot read a hash of '${hashed}' next to one of '${again}'`);
  }
  return { kind, key: [...parseKey(mask), ...parseKey(key ?? hashed)], container };
}

function priority(kind: "priority-or" | "priority-set") {
  return (value = ""): Statement => ({ kind, value: Number(value) });
}

function mark(kind: "mark-clear" | "mark-set" | "marked") {
  return (value = ""): Statement => ({ kind, mark: Number(value) });
}

function end(letter: string | undefined): "destination" | "source" {
  return letter === "s" ? "source" : "destination";
}

function parseKey(text: string): Key {
  return text.split(" . ").map((part): KeyPart => {
    const [, count, offset = "0"] = /^numgen random mod (\d+)(?: offset (\d+))?$/.exec(part) ?? [];
    if (count !== undefined) {
      return { kind: "random", count: Number(count), offset: Number(offset) };
    }
    if (/^ip6? saddr$/.test(part)) return { kind: "source" };
    if (/^ip6? daddr$/.test(part)) return { kind: "destination" };
    if (part === "meta l4proto") return { kind: "protocol" };
    if (part === "th dport") return { kind: "port" };
    const [, mask = "0xffffffff"] = /^meta priority and (0x[0-9a-f]+)$/.exec(part) ?? [];
    return { kind: "priority", mask: Number(mask) };
  });
}
