/**
 * Walks the first packet of a connection through a table of nftables, along every path that chance
 * allows. Pure.
 */
import {
  addressNumber,
  type IpAddress,
  parseIpAddress,
  tryParseIpAddress,
} from "../../../lib/net/ip_address.ts";
import { type Key, type KeyPart, parseNftRule, type Statement } from "./nft_rule.ts";
import type { AnyPacket } from "./walked_packet.ts";
import type { WalkOutcome } from "./iptables_walk.ts";
import { type Cidr, cidrContains } from "../../../lib/net/cidr.ts";

/** A packet as a rule sees it, after the rules before. */
interface SeenPacket extends AnyPacket {
  readonly priority: number;
}

/** A key, and how likely chance makes it. */
interface DrawnKey {
  readonly text: string;
  readonly chance: number;
}

/** A statement that only matches. */
type MatchStatement = Extract<
  Statement,
  { readonly kind: "in-range" | "interface" | "local" | "never" | "ports" | "protocol" }
>;

/** Whether a statement that only matches lets the rule go on. */
function matches(
  statement: MatchStatement,
  packet: SeenPacket,
  isLocal: (address: IpAddress) => boolean,
): boolean {
  if (statement.kind === "never") return false;
  if (statement.kind === "protocol") return packet.protocol.toLowerCase() === statement.name;
  if (statement.kind === "ports") {
    return packet.protocol !== "ICMP" && statement.first <= packet.port &&
      packet.port <= statement.last;
  }
  if (statement.kind === "interface") {
    const { name, not } = statement;
    const { inInterface = "" } = packet;
    const isWanted = name.endsWith("*")
      ? inInterface.startsWith(name.slice(0, -1))
      : inInterface === name;
    return isWanted !== not;
  }
  const address = packet[statement.part];
  const isMet = statement.kind === "local"
    ? isLocal(address)
    : rangeContains(statement.value, address);
  return isMet !== statement.not;
}

/** Returns every key that chance may make for a packet. */
function keysOf(key: Key, packet: SeenPacket): readonly DrawnKey[] {
  let keys: readonly DrawnKey[] = [{ text: "", chance: 1 }];
  for (const part of key) {
    const values = valuesOf(part, packet);
    keys = keys.flatMap(({ text, chance }) => {
      const start = text === "" ? "" : `${text} . `;
      return values.map((value) => ({ text: start + value, chance: chance / values.length }));
    });
  }
  return keys;
}

/**
 * Returns the element of a set that contains a key: the key itself, or one whose last part is a
 * range.
 */
function memberOf(elements: ReadonlyMap<string, string>, key: string): string | undefined {
  if (elements.has(key)) return key;
  const start = key.slice(0, key.lastIndexOf(" ") + 1);
  const last = key.slice(start.length);
  for (const element of elements.keys()) {
    if (!element.startsWith(start)) continue;
    const range = element.slice(start.length);
    const address = tryParseIpAddress(last);
    if (address ? rangeContains(range, address) : isInPorts(last, range)) return element;
  }
  return undefined;
}

/** A priority as elements have it. */
function numberText(priority: number): string {
  return `0x${priority.toString(16)}`;
}

function valuesOf(part: KeyPart, packet: SeenPacket): readonly string[] {
  switch (part.kind) {
    case "source":
    case "destination":
      return [packet[part.kind]];
    case "protocol":
      return [packet.protocol.toLowerCase()];
    case "port":
      return [String(packet.port)];
    case "priority":
      return [numberText((packet.priority & part.mask) >>> 0)];
    case "random":
      return Array.from({ length: part.count }, (_, index) => String(part.offset + index));
  }
}

function isInPorts(port: string, range: string): boolean {
  const [, first, last] = /^(\d+)-(\d+)$/.exec(range) ?? [];
  return Number(first) <= Number(port) && Number(port) <= Number(last);
}

/** Whether a range in the spelling of `rangesOf()` has an address. Never true across families. */
function rangeContains(range: string, address: IpAddress): boolean {
  if (range.includes("/")) return cidrContains(range as Cidr, address);
  if (range.includes(":") !== address.includes(":")) return false;
  const [first = range, last = first] = range.split("-");
  const number = addressNumber(address);
  return addressNumber(first as IpAddress) <= number &&
    number <= addressNumber(last as IpAddress);
}

/** A table, or the part of it that a packet can meet. */
export interface WalkedNftTable {
  /** Rules by chain. */
  readonly chains: ReadonlyMap<string, readonly string[]>;
  /** Hooks by base chain. */
  readonly hooks: ReadonlyMap<string, string>;
  /** Values of elements by key, by set or map; in sets the empty text. */
  readonly elements: ReadonlyMap<string, ReadonlyMap<string, string>>;
}

/** The state of the host, apart from the table. */
export interface WalkedNftHost {
  /** Whether an address is one of the node, loopback included. */
  readonly isLocal: (address: IpAddress) => boolean;
  /** The elements that the packet path added to the map `affinity`. */
  readonly affinity: ReadonlyMap<string, string>;
  /** Called for each rule that the packet is compared with. */
  readonly onRule?: () => void;
}

/** A possible end of a packet's path. */
export interface NftOutcome extends Omit<WalkOutcome, "lists"> {
  /** The priority when it leaves. */
  readonly priority: number;
  /** The elements of the map `affinity` after it. */
  readonly affinity: ReadonlyMap<string, string>;
}

/** nf_tables has the same limit (NFT_JUMP_STACK_SIZE). */
const MAX_DEPTH = 16;
/** The map that the packet path itself writes. */
const AFFINITY = "affinity";

/** A packet on its path. */
type State = Omit<NftOutcome, "verdict">;
/**
 * `next` = goes on in the same rule, `break` = at the next rule, `return` = after the last jump, else it
 * left the hook.
 */
interface Step {
  readonly state: State;
  readonly ending: "ACCEPT" | "DROP" | "REJECT" | "break" | "next" | "return";
}

/**
 * Returns every possible end of the packet's path; their probabilities add up to 1. Throws an error
 * that quotes a rule which it cannot parse.
 */
export function walkNft(
  table: WalkedNftTable,
  packet: AnyPacket,
  host: WalkedNftHost,
): readonly NftOutcome[] {
  return new Walk(table, packet, host).outcomes();
}

class Walk {
  readonly #table: WalkedNftTable;
  readonly #packet: AnyPacket;
  readonly #host: WalkedNftHost;
  /** Many paths meet the same rules. */
  readonly #parsed = new Map<string, readonly Statement[]>();
  /** Base chains by hook, in the order of their priority. */
  readonly #hooks: ReadonlyMap<string, readonly { readonly chain: string }[]>;

  constructor(table: WalkedNftTable, packet: AnyPacket, host: WalkedNftHost) {
    this.#table = table;
    this.#packet = packet;
    this.#host = host;
    const hooks = [...table.hooks].map(([chain, hook]) => {
      const [, name = "", priority] = /hook (\w+) priority (-?\d+)/.exec(hook) ?? [];
      return { chain, name, priority: Number(priority) };
    }).sort((left, right) => left.priority - right.priority);
    this.#hooks = Map.groupBy(hooks, ({ name }) => name);
  }

  outcomes(): readonly NftOutcome[] {
    const { affinity } = this.#host;
    const isFromNode = this.#packet.inInterface === undefined;
    const start: State = {
      ...{ probability: 1, affinity, masquerade: false, mark: 0, priority: 0, path: [] },
    };
    // The path of an accepted packet ends at a local socket. The node's own packets still pass postrouting.
    const isForNode = (state: State) =>
      !isFromNode && this.#host.isLocal(this.#seen(state).destination);
    const first = this.#hook(isFromNode ? "output" : "prerouting", start);
    const routed = isFromNode
      ? first
      : first.flatMap((step) =>
        isOut(step) || isForNode(step.state) ? [step] : this.#hook("forward", step.state)
      );
    return routed.flatMap((step): NftOutcome[] => {
      const { state, ending } = step;
      if (isOut(step)) return [{ ...state, verdict: ending === "DROP" ? "DROP" : "REJECT" }];
      if (isForNode(state)) return [{ ...state, verdict: "ACCEPT" }];
      return this.#hook("postrouting", state).map(({ state }) => ({ ...state, verdict: "ACCEPT" }));
    });
  }

  /** All chains of a hook, by priority. */
  #hook(name: string, state: State): readonly Step[] {
    let steps: readonly Step[] = [{ state, ending: "break" }];
    for (const { chain } of this.#hooks.get(name) ?? []) {
      steps = steps.flatMap((step) =>
        // The kernel asks no further chain of type nat once an address was rewritten.
        isOut(step) || step.state.endpoint && (name === "prerouting" || name === "output")
          ? [step]
          : this.#chain(chain, step.state, 0)
      );
    }
    return steps;
  }

  #chain(chain: string, state: State, depth: number): readonly Step[] {
    const rules = this.#table.chains.get(chain);
    if (rules === undefined) throw new Error(`Cannot walk: there is no chain '${chain}'`);
    if (depth > MAX_DEPTH) throw new Error(`Cannot walk: '${chain}' is too deep`);
    let open: readonly State[] = [state];
    const left: Step[] = [];
    for (const text of rules) {
      const statements = this.#parse(text);
      const next: State[] = [];
      const rule = { object: "rule", name: chain, text: `${chain} ${text}` };
      for (const state of open) {
        this.#host.onRule?.();
        const path = [...state.path, rule];
        for (const step of this.#statements(statements, { ...state, path }, depth)) {
          // A rule that did not match, or whose chain had no effect, does not contribute to the
          // outcome.
          const isIdle = step.ending === "break" ||
            (step.ending === "next" && step.state.path === path && !statements.some(acts));
          if (isIdle) next.push({ ...step.state, path: state.path });
          else if (step.ending === "next") next.push(step.state);
          else left.push(step);
        }
      }
      open = next;
    }
    return [...left, ...open.map((state): Step => ({ state, ending: "break" }))];
  }

  #parse(text: string): readonly Statement[] {
    const statements = this.#parsed.get(text) ?? parseNftRule(text);
    this.#parsed.set(text, statements);
    return statements;
  }

  #statements(
    [first, ...rest]: readonly Statement[],
    state: State,
    depth: number,
  ): readonly Step[] {
    if (first === undefined) return [{ state, ending: "next" }];
    return this.#statement(first, state, depth).flatMap((step) =>
      step.ending === "next" ? this.#statements(rest, step.state, depth) : [step]
    );
  }

  #statement(statement: Statement, state: State, depth: number): readonly Step[] {
    const go = (changes: Partial<State> = {}): Step[] => [
      { state: { ...state, ...changes }, ending: "next" },
    ];
    const stop: Step[] = [{ state, ending: "break" }];
    const { mark, priority } = state;
    switch (statement.kind) {
      case "in-range":
      case "interface":
      case "local":
      case "never":
      case "ports":
      case "protocol":
        return matches(statement, this.#seen(state), this.#host.isLocal) ? go() : stop;
      case "draw": {
        const { count, first } = statement;
        const probability = state.probability / count;
        return Array.from(
          { length: count },
          (_, index) => go({ priority: first + index, probability }),
        ).flat();
      }
      case "note":
        return go();
      case "was-dnat":
        return state.endpoint ? go() : stop;
      case "has-slot":
        return (priority & 0x80000000) === 0 ? stop : go();
      case "priority-set":
        return go({ priority: statement.value });
      case "priority-or":
        return go({ priority: (priority | statement.value) >>> 0 });
      case "marked":
        return (mark & statement.mark) === statement.mark ? go() : stop;
      case "mark-set":
        return go({ mark: mark | statement.mark });
      case "mark-clear":
        return go({ mark: mark ^ statement.mark });
      case "masquerade":
        return [{ state: { ...state, masquerade: true }, ending: "ACCEPT" }];
      case "verdict":
        return this.#verdict(statement.verdict, state, depth);
      default:
        return this.#look(statement, state, depth);
    }
  }

  #look(
    { kind, key, container }: Extract<Statement, { readonly key: Key }>,
    state: State,
    depth: number,
  ): readonly Step[] {
    const elements = container === AFFINITY ? state.affinity : this.#elements(container);
    return keysOf(key, this.#seen(state)).flatMap(({ text, chance }): readonly Step[] => {
      const drawn: State = { ...state, probability: state.probability * chance };
      const go = (changes: Partial<State>): Step[] => [
        { state: { ...drawn, ...changes }, ending: "next" },
      ];
      if (kind === "remember") {
        if (elements.has(text)) return go({});
        return go({ affinity: new Map([...state.affinity, [text, numberText(state.priority)]]) });
      }
      if (kind === "forget") {
        return go({ affinity: new Map([...state.affinity].filter(([known]) => known !== text)) });
      }
      const found = /member/.test(kind) ? memberOf(elements, text) : text;
      if (kind === "no-member") {
        return found === undefined ? go({}) : [{ state: drawn, ending: "break" }];
      }
      const value = elements.get(found ?? "");
      if (found === undefined || value === undefined) return [{ state: drawn, ending: "break" }];
      const path = this.#met(state, { container, key: found, value });
      if (kind === "member") return go({ path });
      if (kind === "recall") return go({ path, priority: Number(value) });
      if (kind === "verdict-map") return this.#verdict(value, { ...drawn, path }, depth);
      return [{ state: { ...drawn, path, endpoint: endpointOf(value) }, ending: "ACCEPT" }];
    });
  }

  /** The path with an element. Those that the packet path wrote are not part of any rendered text. */
  #met(
    { path }: State,
    { container, key, value }: Readonly<Record<"container" | "key" | "value", string>>,
  ): State["path"] {
    if (container === AFFINITY) return path;
    const object = value === "" ? "set element" : "map element";
    const text = value === "" ? key : `${key} : ${value}`;
    return [...path, { object, name: container, text }];
  }

  #verdict(verdict: string, state: State, depth: number): readonly Step[] {
    const [word, chain = ""] = verdict.split(" ");
    if (word === "accept") return [{ state, ending: "ACCEPT" }];
    if (word === "drop") return [{ state, ending: "DROP" }];
    if (word === "reject") return [{ state, ending: "REJECT" }];
    if (word === "return") return [{ state, ending: "return" }];
    const steps = this.#chain(chain, state, depth + 1);
    if (word === "jump") {
      return steps.map((step) =>
        step.ending === "break" || step.ending === "return" ? { ...step, ending: "next" } : step
      );
    }
    // The end of a chain after a goto leads back to the last jump, or else ends the base chain.
    return steps.map((step) => step.ending === "break" ? { ...step, ending: "return" } : step);
  }

  /** Returns the packet as the rules see it at this point. */
  #seen({ endpoint, priority }: State): SeenPacket {
    const { address: destination = this.#packet.destination, port = this.#packet.port } =
      endpoint ?? {};
    return { ...this.#packet, destination, port, priority };
  }

  #elements(container: string): ReadonlyMap<string, string> {
    const elements = this.#table.elements.get(container);
    if (elements === undefined) {
      throw new Error(`Cannot walk: there is no set or map '${container}'`);
    }
    return elements;
  }
}

/** Whether a packet goes no further. */
function isOut({ ending }: Step): boolean {
  return ending === "DROP" || ending === "REJECT";
}

/** Whether a statement changes the packet or the stored state, besides matching or jumping. */
function acts({ kind }: Statement): boolean {
  return /^(?:draw|forget|mark-(?:clear|set)|priority-(?:or|set)|recall|remember)$/.test(kind);
}

function endpointOf(text: string): NonNullable<NftOutcome["endpoint"]> {
  const [address = "", port] = text.split(" . ");
  return { address: parseIpAddress(address), port: Number(port) };
}
