/**
 * Walks the first packet of a connection through a table of nftables, every way that chance may take.
 *
 * @module
 */
import { type IpAddress, parseIpAddress } from "../../../lib/net/ip_address.ts";
import type { FakeNftTable } from "../fake_nft.ts";
import type { WalkedPacket } from "../../../backends/netfilter/walk/iptables_walk.ts";
import { hasMember, isInRange } from "./nft_members.ts";
import { type Key, type KeyPart, parseNftRule, type Statement } from "./nft_rule.ts";

/** What there is beside the table. */
export interface NftHost {
  /** The addresses of the node, those of loopback included. */
  readonly addresses: readonly IpAddress[];
  /** What the packet path remembered so far: values by key. */
  readonly affinity?: ReadonlyMap<string, string>;
}

/** One end that a packet may come to. */
export interface NftOutcome {
  /** `ACCEPT` = it goes on to its destination. */
  readonly verdict: "ACCEPT" | "DROP" | "REJECT";
  /** How likely this way is. */
  readonly probability: number;
  /** Set when the destination was rewritten. */
  readonly endpoint?: { readonly address: IpAddress; readonly port: number };
  readonly masquerade: boolean;
  /** The mark when it leaves. */
  readonly mark: number;
  /** The priority when it leaves. */
  readonly priority: number;
  /** What is remembered after it. */
  readonly affinity: ReadonlyMap<string, string>;
  /** The rules that matched, each as its chain and text. */
  readonly path: readonly string[];
}

/** nf_tables follows no more (NFT_JUMP_STACK_SIZE). */
const MAX_DEPTH = 16;

/** A packet on its way. */
type State = Omit<NftOutcome, "verdict">;
/** `next` = goes on in the same rule, `break` = at the next rule, else where it left. */
interface Step {
  readonly state: State;
  readonly ending: "ACCEPT" | "DROP" | "REJECT" | "break" | "next";
}

/** Every end that the packet may come to; probabilities sum up to 1. */
export function traceNft(
  table: FakeNftTable,
  packet: WalkedPacket,
  host: NftHost,
): readonly NftOutcome[] {
  const walk = new Walk(table, packet, host);
  const isFromNode = packet.inInterface === undefined;
  const start: State = {
    probability: 1,
    masquerade: false,
    mark: 0,
    priority: 0,
    affinity: host.affinity ?? new Map(),
    path: [],
  };
  return walk.hook(isFromNode ? "output" : "prerouting", [start]).flatMap((step): NftOutcome[] => {
    const { state, ending } = step;
    if (ending === "DROP" || ending === "REJECT") return [{ ...state, verdict: ending }];
    const { address = packet.destination } = state.endpoint ?? {};
    // What was let in is there; what the node sends to itself still passes postrouting.
    if (!isFromNode && host.addresses.includes(address)) return [{ ...state, verdict: "ACCEPT" }];
    return walk.hook("postrouting", [state]).map(({ state }) => ({ ...state, verdict: "ACCEPT" }));
  });
}

class Walk {
  readonly #table: FakeNftTable;
  readonly #packet: WalkedPacket;
  readonly #host: NftHost;

  constructor(table: FakeNftTable, packet: WalkedPacket, host: NftHost) {
    this.#table = table;
    this.#packet = packet;
    this.#host = host;
  }

  /** All chains of a hook, by priority. */
  hook(name: string, states: readonly State[]): readonly Step[] {
    const chains = [...this.#table.hooks].flatMap(([chain, hook]) => {
      const [, where, priority] = /hook (\w+) priority (-?\d+)/.exec(hook) ?? [];
      return where === name ? [{ chain, priority: Number(priority) }] : [];
    }).sort((left, right) => left.priority - right.priority);
    let steps: readonly Step[] = states.map((state) => ({ state, ending: "break" }));
    for (const { chain } of chains) {
      steps = steps.flatMap((step) =>
        // The kernel asks no further chain of type nat once an address was rewritten.
        step.ending === "DROP" || step.ending === "REJECT" ||
          step.state.endpoint && name !== "postrouting"
          ? [step]
          : this.#chain(chain, step.state, 0)
      );
    }
    return steps;
  }

  #chain(chain: string, state: State, depth: number): readonly Step[] {
    const rules = this.#table.chains.get(chain);
    if (rules === undefined) throw new Error(`Cannot trace: there is no chain '${chain}'`);
    if (depth > MAX_DEPTH) throw new Error(`Cannot trace: '${chain}' is too deep`);
    let open: readonly State[] = [state];
    const left: Step[] = [];
    for (const text of rules) {
      const statements = parseNftRule(text);
      const next: State[] = [];
      for (const state of open) {
        const noted = { ...state, path: [...state.path, `${chain}: ${text}`] };
        for (const step of this.#statements(statements, noted, depth)) {
          if (step.ending === "next") next.push(step.state);
          // A rule that did not match is no part of the way.
          else if (step.ending === "break") next.push({ ...step.state, path: state.path });
          else left.push(step);
        }
      }
      open = next;
    }
    return [...left, ...open.map((state): Step => ({ state, ending: "break" }))];
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
        return this.#matches(statement, state) ? go() : stop;
      case "draw": {
        const { count, first } = statement;
        const probability = state.probability / count;
        return Array.from(
          { length: count },
          (_, index) => go({ priority: first + index, probability }),
        ).flat();
      }
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
    statement: Extract<Statement, { readonly key: Key }>,
    state: State,
    depth: number,
  ): readonly Step[] {
    const { kind, key, container } = statement;
    const elements = container === "affinity" ? state.affinity : this.#elements(container);
    return this.#keys(key, state).flatMap(({ text, chance }): readonly Step[] => {
      const drawn: State = { ...state, probability: state.probability * chance };
      const go = (changes: Partial<State>): Step[] => [
        { state: { ...drawn, ...changes }, ending: "next" },
      ];
      if (kind === "remember") {
        if (elements.has(text)) return go({});
        return go({ affinity: new Map([...state.affinity, [text, slot(state.priority)]]) });
      }
      if (kind === "forget") {
        return go({ affinity: new Map([...state.affinity].filter(([known]) => known !== text)) });
      }
      if (kind === "member") {
        return hasMember(elements, text) ? go({}) : [{ state: drawn, ending: "break" }];
      }
      const value = elements.get(text);
      if (value === undefined) return [{ state: drawn, ending: "break" }];
      if (kind === "recall") return go({ priority: Number(value) });
      if (kind === "verdict-map") return this.#verdict(value, drawn, depth);
      return [{ state: { ...drawn, endpoint: endpointOf(value) }, ending: "ACCEPT" }];
    });
  }

  #verdict(verdict: string, state: State, depth: number): readonly Step[] {
    const [word, chain = ""] = verdict.split(" ");
    if (word === "drop") return [{ state, ending: "DROP" }];
    if (word === "reject") return [{ state, ending: "REJECT" }];
    const steps = this.#chain(chain, state, depth + 1);
    if (word === "jump") {
      return steps.map((step) => step.ending === "break" ? { ...step, ending: "next" } : step);
    }
    // The end of a chain that was gone to is the end of the base chain, if no jump led there.
    return steps.map((step) => step.ending === "break" ? { ...step, ending: "ACCEPT" } : step);
  }

  #matches(
    statement: Extract<Statement, { readonly kind: "in-range" | "interface" | "local" }>,
    state: State,
  ): boolean {
    if (statement.kind === "interface") {
      const { name, not } = statement;
      const { inInterface = "" } = this.#packet;
      const isWanted = name.endsWith("*")
        ? inInterface.startsWith(name.slice(0, -1))
        : inInterface === name;
      return isWanted !== not;
    }
    const address = this.#address(statement.part, state);
    if (statement.kind === "local") {
      return this.#host.addresses.includes(address) !== statement.not;
    }
    return isInRange(address, statement.value) !== statement.not;
  }

  #keys(key: Key, state: State): readonly { readonly text: string; readonly chance: number }[] {
    let keys = [{ text: "", chance: 1 }];
    for (const part of key) {
      keys = keys.flatMap(({ text, chance }) => {
        const values = this.#values(part, state);
        const start = text === "" ? "" : `${text} . `;
        return values.map((value) => ({ text: start + value, chance: chance / values.length }));
      });
    }
    return keys;
  }

  #values(part: KeyPart, state: State): readonly string[] {
    switch (part.kind) {
      case "source":
      case "destination":
        return [this.#address(part.kind, state)];
      case "protocol":
        return [this.#packet.protocol.toLowerCase()];
      case "port":
        return [String(state.endpoint?.port ?? this.#packet.port)];
      case "priority":
        return [slot((state.priority & part.mask) >>> 0)];
      case "random":
        return Array.from({ length: part.count }, (_, index) => String(part.offset + index));
    }
  }

  #address(part: "destination" | "source", { endpoint }: State): IpAddress {
    if (part === "source") return this.#packet.source;
    return endpoint?.address ?? this.#packet.destination;
  }

  #elements(container: string): ReadonlyMap<string, string> {
    const elements = this.#table.elements.get(container);
    if (elements === undefined) throw new Error(`Cannot trace: there is no '${container}'`);
    return elements;
  }
}

function slot(priority: number): string {
  return `0x${priority.toString(16)}`;
}

function endpointOf(text: string): NonNullable<NftOutcome["endpoint"]> {
  const [address = "", port] = text.split(" . ");
  return { address: parseIpAddress(address), port: Number(port) };
}
