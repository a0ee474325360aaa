/**
 * Walks the first packet of a connection through tables of iptables, every way that chance may take.
 *
 * @module
 */
import { cidrContains, hostCidr } from "../../../lib/net/cidr.ts";
import { type IpAddress, parseIpAddress } from "../../../lib/net/ip_address.ts";
import type { Protocol } from "../../../lib/net/port.ts";
import { parseTracedRule, type TracedRule } from "./iptables_rule.ts";

/** Tables by name, chains by name, rules as text without their chain. */
export type TracedTables = Readonly<
  Record<"filter" | "nat", ReadonlyMap<string, readonly string[]>>
>;

/** A packet that opens a connection. */
export interface TracedPacket {
  readonly source: IpAddress;
  readonly destination: IpAddress;
  readonly port: number;
  readonly protocol: Protocol;
  /** By which interface it came; absent = the node itself sends it. */
  readonly inInterface?: string;
}

/** What there is beside the rules. */
export interface TracedHost {
  /** The addresses of the node, those of loopback included. */
  readonly addresses: readonly IpAddress[];
  /** The lists of `recent` in which the sender is. */
  readonly lists?: ReadonlySet<string>;
}

/** One end that a packet may come to. */
export interface TraceOutcome {
  /** `ACCEPT` = it goes on to its destination. */
  readonly verdict: "ACCEPT" | "DROP" | "REJECT";
  /** How likely this way is. */
  readonly probability: number;
  /** Set when the destination was rewritten. */
  readonly endpoint?: { readonly address: IpAddress; readonly port: number };
  readonly masquerade: boolean;
  /** The mark when it leaves. */
  readonly mark: number;
  /** The lists that the sender was put into. */
  readonly lists: readonly string[];
  /** The rules that matched, as `table chain rule`. */
  readonly path: readonly string[];
}

/** nf_tables follows no more (NFT_JUMP_STACK_SIZE). */
const MAX_DEPTH = 16;

/** A packet on its way. */
type State = Omit<TraceOutcome, "verdict">;
type Ending = "ACCEPT" | "DROP" | "MASQUERADE" | "REJECT" | "RETURN";
/** A state, and why a chain was left: `RETURN` = it came to its end. */
interface Step {
  readonly state: State;
  readonly ending: Ending;
}

/** Every end that the packet may come to; probabilities sum up to 1. */
export function tracePacket(
  tables: TracedTables,
  packet: TracedPacket,
  host: TracedHost,
): readonly TraceOutcome[] {
  const walk = new Walk(tables, packet, host);
  const isFromNode = packet.inInterface === undefined;
  const start: State = { probability: 1, masquerade: false, mark: 0, lists: [], path: [] };
  return walk.builtIn("nat", isFromNode ? "OUTPUT" : "PREROUTING", start).flatMap((step) => {
    const { address = packet.destination } = step.state.endpoint ?? {};
    const isLocal = host.addresses.includes(address);
    const hook = isFromNode ? "OUTPUT" : isLocal ? "INPUT" : "FORWARD";
    return walk.builtIn("filter", hook, step.state);
  }).flatMap(({ state, ending }): TraceOutcome[] => {
    if (ending === "DROP" || ending === "REJECT") return [{ ...state, verdict: ending }];
    const { address = packet.destination } = state.endpoint ?? {};
    // What was let in is there; what the node sends to itself still passes POSTROUTING.
    if (!isFromNode && host.addresses.includes(address)) return [{ ...state, verdict: "ACCEPT" }];
    return walk.builtIn("nat", "POSTROUTING", state).map(({ state, ending }) => ({
      ...state,
      verdict: "ACCEPT",
      masquerade: ending === "MASQUERADE",
    }));
  });
}

class Walk {
  readonly #tables: TracedTables;
  readonly #packet: TracedPacket;
  readonly #host: TracedHost;

  constructor(tables: TracedTables, packet: TracedPacket, host: TracedHost) {
    this.#tables = tables;
    this.#packet = packet;
    this.#host = host;
  }

  /** The policy of built-in chains is ACCEPT. */
  builtIn(table: "filter" | "nat", chain: string, state: State): readonly Step[] {
    return this.#chain({ table, chain, depth: 0 }, state)
      .map((step) => step.ending === "RETURN" ? { ...step, ending: "ACCEPT" } : step);
  }

  #chain(
    place: { readonly table: "filter" | "nat"; readonly chain: string; readonly depth: number },
    state: State,
  ): readonly Step[] {
    const rules = this.#tables[place.table].get(place.chain);
    if (rules === undefined) throw new Error(`Cannot trace: there is no chain '${place.chain}'`);
    if (place.depth > MAX_DEPTH) throw new Error(`Cannot trace: '${place.chain}' is too deep`);
    let open: readonly State[] = [state];
    const left: Step[] = [];
    for (const text of rules) {
      const rule = parseTracedRule(text);
      const next: State[] = [];
      for (const state of open) {
        const chance = this.#chance(rule, state);
        if (chance < 1) next.push({ ...state, probability: state.probability * (1 - chance) });
        if (chance === 0) continue;
        const lists = rule.recent?.action === "set" ? [rule.recent.list] : [];
        const matched: State = {
          ...state,
          probability: state.probability * chance,
          lists: [...state.lists, ...lists],
          path: [...state.path, `${place.table} ${place.chain} ${text}`],
        };
        for (const step of this.#target(rule, place, matched)) {
          if (step.ending !== "RETURN") left.push(step);
          // A RETURN of this chain itself, or a chain that was gone to and not jumped to.
          else if (rule.target[0] === "RETURN" || rule.isGoto) left.push(step);
          else next.push(step.state);
        }
      }
      open = next;
    }
    return [...left, ...open.map((state): Step => ({ state, ending: "RETURN" }))];
  }

  #target(
    { target, isGoto }: TracedRule,
    { table, depth }: { readonly table: "filter" | "nat"; readonly depth: number },
    state: State,
  ): readonly Step[] {
    const [name, option, value = "", ...rest] = target;
    if (name === undefined) return [{ state, ending: "RETURN" }];
    if (isGoto || name.startsWith("KUBE-")) {
      if (option !== undefined) throw new Error(`Cannot trace '${target.join(" ")}'`);
      return this.#chain({ table, chain: name, depth: depth + 1 }, state);
    }
    switch (`${name} ${option ?? ""}`) {
      case "ACCEPT ":
      case "DROP ":
      case "REJECT ":
      case "RETURN ":
        return [{ state, ending: endingOf(name) }];
      case "MASQUERADE ":
      case "MASQUERADE --random-fully":
        return [{ state, ending: "MASQUERADE" }];
      case "MARK --or-mark":
        return [{ state: { ...state, mark: state.mark | Number(value) }, ending: "RETURN" }];
      case "MARK --xor-mark":
        return [{ state: { ...state, mark: state.mark ^ Number(value) }, ending: "RETURN" }];
      case "DNAT --to-destination":
        if (rest.length > 0) break;
        return [{ state: { ...state, endpoint: endpointOf(value) }, ending: "ACCEPT" }];
    }
    throw new Error(`Cannot trace the target '${target.join(" ")}'`);
  }

  /** How likely a rule matches: 0, 1, or what it says itself. */
  #chance(rule: TracedRule, state: State): number {
    return this.#matchesPacket(rule, state) && this.#matchesState(rule, state)
      ? rule.probability ?? 1
      : 0;
  }

  #matchesPacket(rule: TracedRule, { endpoint }: State): boolean {
    const { source, protocol, inInterface = "" } = this.#packet;
    const destination = endpoint?.address ?? this.#packet.destination;
    const port = endpoint?.port ?? this.#packet.port;
    const { inInterface: wanted, ports: [first, last] = [0, 65535] } = rule;
    const isWanted = wanted?.value.endsWith("+")
      ? inInterface !== "" && inInterface.startsWith(wanted.value.slice(0, -1))
      : inInterface === wanted?.value;
    const local = rule.local === "source" ? source : destination;
    return (!rule.source || cidrContains(rule.source.value, source) !== rule.source.not) &&
      (!rule.destination ||
        cidrContains(rule.destination.value, destination) !== rule.destination.not) &&
      (!wanted || isWanted !== wanted.not) &&
      (!rule.protocol || rule.protocol === protocol.toLowerCase()) &&
      first <= port && port <= last &&
      (!rule.local || this.#host.addresses.some((own) => cidrContains(hostCidr(own), local)));
  }

  #matchesState(rule: TracedRule, { endpoint, mark }: State): boolean {
    const states = ["NEW", ...(endpoint ? ["DNAT"] : [])];
    const { recent } = rule;
    return (rule.states ?? []).every(({ value, not }) =>
      value.some((state) => states.includes(state)) !== not
    ) &&
      (!rule.mark || ((mark & rule.mark.value) === rule.mark.value) !== rule.mark.not) &&
      (recent?.action !== "update" || (this.#host.lists?.has(recent.list) ?? false));
  }
}

function endingOf(name: string): Ending {
  if (name === "DROP" || name === "REJECT" || name === "RETURN") return name;
  return "ACCEPT";
}

function endpointOf(text: string): NonNullable<TraceOutcome["endpoint"]> {
  const colon = text.lastIndexOf(":");
  const address = parseIpAddress(text.slice(0, colon).replaceAll(/^\[|\]$/g, ""));
  return { address, port: Number(text.slice(colon + 1)) };
}
