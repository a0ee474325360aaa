/**
 * Walks the first packet of a connection through rules of iptables, along every path that chance
 * allows. Pure.
 */
import { cidrContains } from "../../../lib/net/cidr.ts";
import type { IpAddress } from "../../../lib/net/ip_address.ts";
import type { PacketCarrier } from "../../../lib/proxy/packet_explanation.ts";
import { hasBits, parseIptablesRule, type WalkedRule } from "./iptables_rule.ts";
import { endpointOf, IpvsObjects, type IpvsSource } from "./ipvs_objects.ts";
import type { AnyPacket } from "./walked_packet.ts";

/** The tables that a walk passes. */
type WalkedTable = "filter" | "mangle" | "nat";

/** Returns the rules of a chain, as text without the chain's name; `undefined` = there is no such chain. */
export type RuleSource = (table: WalkedTable, chain: string) => readonly string[] | undefined;

/** The state of the host, apart from its rules. */
export interface WalkedHost {
  /** Whether an address is one of the node, loopback included. */
  readonly isLocal: (address: IpAddress) => boolean;
  /** Whether a list of `recent` has the sender. */
  readonly isListed: (list: string) => boolean;
  /** Absent in modes that use neither sets nor IPVS. */
  readonly ipvs?: IpvsSource;
  /** Called for each rule that the packet is compared with. */
  readonly onRule?: () => void;
}

/** A possible end of a packet's path. */
export interface WalkOutcome {
  /** `ACCEPT` = it goes on to its destination. */
  readonly verdict: "ACCEPT" | "DROP" | "REJECT";
  /** The probability of this path. */
  readonly probability: number;
  /** Set when the destination was rewritten. */
  readonly endpoint?: { readonly address: IpAddress; readonly port: number };
  readonly masquerade: boolean;
  /** The mark when it leaves. */
  readonly mark: number;
  /** The lists that the sender was put into. */
  readonly lists: readonly string[];
  /** The rules that contributed to it. A jump to a chain without an effect is left out. */
  readonly path: readonly PacketCarrier[];
}

/** nf_tables has the same limit (NFT_JUMP_STACK_SIZE). */
const MAX_DEPTH = 16;

/** A packet on its path. */
type State = Omit<WalkOutcome, "verdict">;
type Ending = "ACCEPT" | "DROP" | "MASQUERADE" | "REJECT" | "RETURN";
/** A state, and why a chain was left: `RETURN` = it came to its end. */
interface Step {
  readonly state: State;
  readonly ending: Ending;
}

/**
 * Returns every possible end of the packet's path; their probabilities add up to 1. Throws an error
 * that quotes a rule which it cannot parse.
 */
export function walkIptables(
  rules: RuleSource,
  packet: AnyPacket,
  host: WalkedHost,
): readonly WalkOutcome[] {
  const walk = new Walk(rules, packet, host);
  const isFromNode = packet.inInterface === undefined;
  const first = isFromNode ? "OUTPUT" : "PREROUTING";
  const start: State = { probability: 1, masquerade: false, mark: 0, lists: [], path: [] };
  let steps: readonly Step[] = [{ state: start, ending: "ACCEPT" }];
  const pass = (stage: (state: State) => readonly Step[]) => {
    steps = steps.flatMap((step) => step.ending === "ACCEPT" ? stage(step.state) : [step]);
  };
  if (host.ipvs) pass((state) => walk.builtIn("mangle", first, state));
  pass((state) => walk.builtIn("nat", first, state));
  pass((state) => walk.route(state));
  if (isFromNode) {
    pass((state) => walk.balance(state));
    pass((state) => walk.builtIn("filter", "OUTPUT", state));
    // Without a virtual server the packet comes back to this node by lo.
    if (host.ipvs) {
      pass((state) => walk.isForNode(state) ? walk.builtIn("filter", "INPUT", state) : on(state));
    }
  } else {
    pass((state) => walk.builtIn("filter", walk.isForNode(state) ? "INPUT" : "FORWARD", state));
    pass((state) => walk.isForNode(state) ? walk.balance(state) : on(state));
  }
  return steps.flatMap(({ state, ending }): readonly WalkOutcome[] => {
    if (ending === "DROP" || ending === "REJECT") return [{ ...state, verdict: ending }];
    // The path of an accepted packet ends at a local socket. The node's own packets still pass POSTROUTING.
    if (!isFromNode && walk.isForNode(state)) return [{ ...state, verdict: "ACCEPT" }];
    return walk.builtIn("nat", "POSTROUTING", state).map(({ state, ending }) => ({
      ...state,
      verdict: "ACCEPT",
      masquerade: ending === "MASQUERADE",
    }));
  });
}

/** The step of a stage that does nothing. */
function on(state: State): readonly Step[] {
  return [{ state, ending: "ACCEPT" }];
}

class Walk {
  readonly #rules: RuleSource;
  readonly #packet: AnyPacket;
  readonly #host: WalkedHost;
  /** Many paths meet the same rules. */
  readonly #parsed = new Map<string, WalkedRule>();
  readonly #ipvs: IpvsObjects | undefined;

  constructor(rules: RuleSource, packet: AnyPacket, host: WalkedHost) {
    this.#rules = rules;
    this.#packet = packet;
    this.#host = host;
    this.#ipvs = host.ipvs && new IpvsObjects(host.ipvs);
  }

  #isLocal(address: IpAddress): boolean {
    return this.#host.isLocal(address) || this.#ipvs?.address(address) !== undefined;
  }

  /** The packet as it is now. */
  #seen({ endpoint }: State): AnyPacket {
    if (endpoint === undefined) return this.#packet;
    return { ...this.#packet, destination: endpoint.address, port: endpoint.port };
  }

  /** The policy of built-in chains is ACCEPT. */
  builtIn(table: WalkedTable, chain: string, state: State): readonly Step[] {
    return this.#chain({ table, chain, depth: 0 }, state)
      .map((step) => step.ending === "RETURN" ? { ...step, ending: "ACCEPT" } : step);
  }

  /** Whether the packet is for this node, by the address that it has now. */
  isForNode(state: State): boolean {
    return this.#isLocal(this.#seen(state).destination);
  }

  /** Notes the address that makes the packet one for this node. */
  route(state: State): readonly Step[] {
    const address = this.#ipvs?.address(this.#seen(state).destination);
    return on(address ? { ...state, path: [...state.path, address] } : state);
  }

  /** Sends a packet to a real server of the virtual server that it is for. */
  balance(state: State): readonly Step[] {
    const { server, reals = [] } = this.#ipvs?.server(this.#seen(state)) ?? {};
    if (server === undefined) return on(state);
    const path = [...state.path, server];
    // IPVS itself answers the sender.
    if (reals.length === 0) return [{ state: { ...state, path }, ending: "REJECT" }];
    const probability = state.probability / reals.length;
    return reals.flatMap(({ real, endpoint }) =>
      on({ ...state, probability, endpoint, path: [...path, real] })
    );
  }

  #chain(
    place: { readonly table: WalkedTable; readonly chain: string; readonly depth: number },
    state: State,
  ): readonly Step[] {
    const { table, chain, depth } = place;
    const rules = this.#rules(table, chain);
    if (rules === undefined) throw new Error(`Cannot walk: there is no chain '${chain}'`);
    if (depth > MAX_DEPTH) throw new Error(`Cannot walk: '${chain}' is too deep`);
    let open: readonly State[] = [state];
    const left: Step[] = [];
    for (const text of rules) {
      const rule = this.#parse(text);
      const next: State[] = [];
      for (const state of open) {
        this.#host.onRule?.();
        const chance = this.#chance(rule, state);
        if (chance < 1) next.push({ ...state, probability: state.probability * (1 - chance) });
        if (chance === 0) continue;
        const lists = rule.recent?.action === "set" ? [rule.recent.list] : [];
        const entry = rule.set && this.#ipvs?.entry(rule.set, this.#seen(state));
        const path = [...state.path, this.#step(table, chain, text)];
        if (entry) path.push(entry);
        const matched: State = {
          ...state,
          probability: state.probability * chance,
          lists: [...state.lists, ...lists],
          path,
        };
        for (const step of this.#target(rule, place, matched)) {
          // A rule that only returned, or whose chain had no effect, does not contribute to the
          // outcome.
          const isIdle = step.ending === "RETURN" && step.state.path === path &&
            !acts(rule) && !isConsent(chain, rule);
          const after = isIdle ? { ...step.state, path: state.path } : step.state;
          if (step.ending !== "RETURN") left.push(step);
          // A RETURN of this chain itself, or the end of a chain that was reached by goto.
          else if (rule.target[0] === "RETURN" || rule.isGoto) {
            left.push({ ...step, state: after });
          } else next.push(after);
        }
      }
      open = next;
    }
    return [...left, ...open.map((state): Step => ({ state, ending: "RETURN" }))];
  }

  #target(
    { target, isGoto }: WalkedRule,
    { table, depth }: { readonly table: WalkedTable; readonly depth: number },
    state: State,
  ): readonly Step[] {
    const [name, option, value = "", ...rest] = target;
    if (name === undefined) return [{ state, ending: "RETURN" }];
    if (isGoto || name.startsWith("KUBE-")) {
      if (option !== undefined) throw new Error(`Cannot walk '${target.join(" ")}'`);
      return this.#chain({ table, chain: name, depth: depth + 1 }, state);
    }
    switch (`${name} ${option ?? ""}`) {
      case "ACCEPT ":
      case "DROP ":
      case "REJECT ":
      case "REJECT --reject-with":
      case "RETURN ":
        return [{ state, ending: endingOf(name) }];
      case "MASQUERADE ":
      case "MASQUERADE --random-fully":
        return [{ state, ending: "MASQUERADE" }];
      case "NFLOG --nflog-group":
        return [{ state, ending: "RETURN" }];
      case "MARK --or-mark":
        return [{ state: { ...state, mark: state.mark | Number(value) }, ending: "RETURN" }];
      case "MARK --xor-mark":
        return [{ state: { ...state, mark: state.mark ^ Number(value) }, ending: "RETURN" }];
      case "DNAT --to-destination":
        if (rest.length > 0) break;
        return [{ state: { ...state, endpoint: endpointOf(value) }, ending: "ACCEPT" }];
    }
    throw new Error(`Cannot walk the target '${target.join(" ")}'`);
  }

  #step(table: WalkedTable, chain: string, rule: string): PacketCarrier {
    // What jumps out of a built-in chain is inserted at its top.
    const command = chain.startsWith("KUBE-") ? "-A" : "-I";
    const text = `${command} ${chain} ${rule}`;
    return { object: "rule", name: `${table} ${chain}`, text };
  }

  #parse(text: string): WalkedRule {
    const rule = this.#parsed.get(text) ?? parseIptablesRule(text);
    this.#parsed.set(text, rule);
    return rule;
  }

  /** Returns the probability that a rule matches. */
  #chance(rule: WalkedRule, state: State): number {
    if (!this.#matchesPacket(rule, state) || !this.#matchesState(rule, state)) return 0;
    const { recent, probability = 1 } = rule;
    return recent?.action === "update" && !this.#host.isListed(recent.list) ? 0 : probability;
  }

  #matchesPacket(rule: WalkedRule, state: State): boolean {
    const packet = this.#seen(state);
    const { source, destination, port, protocol, inInterface = "" } = packet;
    const { inInterface: wanted, ports, set } = rule;
    const isWanted = wanted?.value.endsWith("+")
      ? inInterface !== "" && inInterface.startsWith(wanted.value.slice(0, -1))
      : inInterface === wanted?.value;
    const local = rule.local === "source" ? source : destination;
    return !rule.isNever &&
      (!rule.source || hasBits(rule.source.value, source) !== rule.source.not) &&
      (!rule.destination ||
        hasBits(rule.destination.value, destination) !== rule.destination.not) &&
      (!rule.originalDestination ||
        cidrContains(rule.originalDestination, this.#packet.destination)) &&
      (!wanted || isWanted !== wanted.not) &&
      (!rule.protocol || rule.protocol === protocol.toLowerCase()) &&
      (ports?.some(([first, last]) => first <= port && port <= last) ?? true) &&
      (!rule.local || this.#isLocal(local)) &&
      (!set || (this.#ipvs?.entry(set, packet) === undefined) === (set.not === true));
  }

  #matchesState(rule: WalkedRule, { endpoint, mark }: State): boolean {
    const states = ["NEW", ...(endpoint ? ["DNAT"] : [])];
    return (rule.states ?? []).every(({ value, not }) =>
      value.some((state) => states.includes(state)) !== not
    ) &&
      (!rule.mark || ((mark & rule.mark.value) === rule.mark.value) !== rule.mark.not);
  }
}

/**
 * Whether a rule has an effect besides a jump or a return. A return by a set has one, because it
 * exempts the members of the set from the rest of the chain.
 */
function acts({ target: [name = "RETURN"], isGoto, recent, set }: WalkedRule): boolean {
  if (name === "RETURN" && set) return true;
  return recent !== undefined || !(isGoto || name === "RETURN" || name.startsWith("KUBE-"));
}

/** A return out of the list of a pod: a policy allows the packet. */
function isConsent(chain: string, { target }: WalkedRule): boolean {
  return target[0] === "RETURN" && /^KUBE-RELAY-([a-z2-7]|POLICY-NO-)/.test(chain);
}

function endingOf(name: string): Ending {
  if (name === "DROP" || name === "REJECT" || name === "RETURN") return name;
  return "ACCEPT";
}
