/**
 * The changes of one sync as input for the tools. The order ensures that no packet meets a partial
 * state. Pure.
 *
 * 1. Sets: new entries for masquerade, source ranges and refusals. Frontends to be removed leave
 *    `SERVED`, so new connections to them are refused from here on.
 * 2. Rules.
 * 3. Virtual servers, all at once: new, changed and removed ones.
 * 4. Addresses. A new address receives its first packet here, after everything else is written.
 * 5. Sets: new ports of existing addresses are opened, and unused entries removed.
 * 6. Unused rules of single Services are removed.
 *
 * Pods get addresses for direct server return between 2 and 3, and lose them between 4 and 5.
 *
 * A change of endpoints starts one process. Adding or removing a Service starts three, whatever the
 * number of Services.
 *
 * @module
 */
import type { ObjectName } from "../../lib/engine/reconciler.ts";
import { type IpAddress, type IpFamily, parseIpAddress } from "../../lib/net/ip_address.ts";
import { parseProtocol } from "../../lib/net/port.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { IPVS_DEVICE } from "../iproute/dummy_devices.ts";
import { addDummyLine, addressLine } from "../iproute/ip_runner.ts";
import {
  addLine,
  canBeSwapped,
  createLine,
  deleteLine,
  destroyLine,
  replaceLines,
  scratchName,
} from "../netfilter/ipset/ipset_text.ts";
import {
  type IptablesTable,
  restoreLines,
  ruleLines,
} from "../netfilter/iptables/iptables_objects.ts";
import { normalRule } from "../netfilter/iptables/rule_normal_form.ts";
import { FIREWALL, FROM_CLUSTER, replyDevicesIn } from "./base_rules.ts";
import { SET_IDS, type SetId, setName, setOptions } from "./ipset_table.ts";
import type { IpvsStep } from "./ipvs_runner.ts";
import { readRealName, realLine, realName, WEIGHT_0 } from "./objects.ts";
import {
  isDrained,
  type RealServerKey,
  type ServerKey,
  serverKey,
} from "../netfilter/virtual_servers.ts";

/** An object that changes; `undefined` = it is not there. */
export interface ObjectChange {
  readonly before: string | undefined;
  readonly after: string | undefined;
  /** The ServicePort that needs it, or the first of several. */
  readonly owner: ServicePortKey | undefined;
}

/** The changes of a virtual server. */
export interface ServerChange {
  self: ObjectChange | undefined;
  readonly reals: Map<RealServerKey, ObjectChange>;
  owner: ServicePortKey | undefined;
}

/** kube-proxy has no such set. */
const PROOF: SetId = "SERVED";
const ALL_TABLES: readonly IptablesTable[] = ["mangle", "filter", "nat"];
/** Lines between two pauses. */
const LINES_PER_STEP = 512;
const NO_CHANGES: ReadonlyMap<string, ObjectChange> = new Map();

/** The changes, by kind and name. */
export class IpvsChanges {
  readonly #kinds = new Map<string, Map<string, ObjectChange>>();
  /** Those of virtual servers and their real servers. */
  readonly servers = new Map<ServerKey, ServerChange>();

  /** An object may pass from one ServicePort to another: then it is added and removed, in any order. */
  add(
    { kind, name }: ObjectName,
    before: string | undefined,
    after: string | undefined,
    owner: ServicePortKey | undefined,
  ): void {
    const change = { before, after, owner };
    if (kind === "server") {
      const server = this.#server(name as ServerKey, owner);
      server.self = merged(server.self, change);
    } else if (kind === "real") {
      const [server, real] = readRealName(name);
      put(this.#server(server, owner).reals, real, change);
    } else put(this.#kinds.getOrInsertComputed(kind, () => new Map()), name, change);
  }

  /** The changes of a kind by name, without those of servers. */
  of(kind: string): ReadonlyMap<string, ObjectChange> {
    return this.#kinds.get(kind) ?? NO_CHANGES;
  }

  /**
   * Returns the input of each tool, in short steps. `drains`: the real servers of weight 0, by virtual
   * server. `createsDevice`: the device is created with its addresses. `isTakeover`: another mode is still
   * serving, so that its rules in table nat stay until everything else exists.
   */
  *steps({ family, drains = new Map(), createsDevice = false, isTakeover = false }: {
    readonly family: IpFamily;
    readonly drains?: ReadonlyMap<ServerKey, ReadonlyMap<RealServerKey, unknown>>;
    readonly createsDevice?: boolean;
    readonly isTakeover?: boolean;
  }): Generator<void, readonly IpvsStep[]> {
    const early = new Set<IptablesTable>(isTakeover ? ["mangle", "filter"] : ALL_TABLES);
    const late = new Set<IptablesTable>(isTakeover ? ["nat"] : []);
    const sets = yield* collect("ipset", this.#setsBefore(family));
    const rules: IpvsStep = { tool: "iptables", lines: this.#rulesBefore(early) };
    const isFixed = this.of("chain").size + this.of("set").size === 0;
    const steps: IpvsStep[] = [
      { tool: "pods", lines: this.#closings() },
      // iptables refuses rules that name a missing set, so they come after the sets. Rules of a single
      // Service come before the entries that drop packets by its policy.
      ...(isFixed ? [rules, sets] : [sets, rules]),
      // A pod is ready before it gets packets, and the rules for its replies come before.
      { tool: "pods", lines: this.#podLines(true) },
      yield* collect("ipvsadm", this.#serverLines(drains)),
      yield* collect("ip", this.#addressLines(createsDevice)),
      { tool: "iptables", lines: this.#rulesBefore(late) },
      // Before the entries that are the sign of them.
      { tool: "pods", lines: this.#podLines(false) },
      yield* collect("ipset", this.#setsAfter(family)),
      { tool: "iptables", lines: this.#rulesAfter() },
    ];
    return steps.filter(({ lines }) => lines.length > 0);
  }

  #server(key: ServerKey, owner: ServicePortKey | undefined): ServerChange {
    const change: ServerChange = this.servers.getOrInsertComputed(key, () => ({
      self: undefined,
      reals: new Map(),
      owner,
    }));
    change.owner = owner ?? change.owner;
    return change;
  }

  /** Devices whose rules for replies go. */
  #closings(): string[] {
    const { before, after } = this.of("chain").get(`mangle ${FIREWALL}`) ?? {};
    return [...replyDevicesIn(before).difference(replyDevicesIn(after))].map((device) =>
      `close ${device}`
    );
  }

  #podLines(isAdded: boolean): string[] {
    return [...this.of("pod")].flatMap(([name, { after }]) =>
      (after !== undefined) === isAdded ? `${isAdded ? "add" : "del"} ${name}` : []
    );
  }

  *#setsBefore(family: IpFamily): Generator<string> {
    const sets = this.of("set");
    for (const [name, { before }] of sets) {
      if (before !== undefined && !this.#isReplaced(name)) yield destroyLine(name);
    }
    // The proof exists before the others, so that a cleanup recognizes them.
    for (const id of [PROOF, ...SET_IDS.filter((each) => each !== PROOF)]) {
      const name = setName(id, family);
      const options = setOptions(id, family);
      if (sets.get(name)?.after === undefined) continue;
      if (this.#isReplaced(name)) {
        const wanted = [...this.of(name)].filter(([, { after }]) => after !== undefined);
        yield* replaceLines(name, { options, entries: wanted.map(([entry]) => entry) });
      } else yield createLine(name, options);
    }
    yield* this.#entryLines(family, false, false);
    yield* this.#entryLines(family, true, false);
  }

  *#setsAfter(family: IpFamily): Generator<string> {
    yield* this.#entryLines(family, true, true);
    yield* this.#entryLines(family, false, true);
  }

  /** Entries that admit packets are added late, and those that do so are deleted early. */
  *#entryLines(family: IpFamily, isAdded: boolean, isLate: boolean): Generator<string> {
    const ids = SET_IDS.filter((id) => {
      const name = setName(id, family);
      return this.#kinds.has(name) && !this.#isReplaced(name);
    });
    // In reverse: entries that refuse are removed before those that admit.
    for (const id of isLate && !isAdded ? ids.reverse() : ids) {
      const name = setName(id, family);
      for (const [entry, { after }] of this.of(name)) {
        if ((after !== undefined) !== isAdded) continue;
        const isSwitch = isAdded
          ? this.#isOpening(id, entry, family)
          : this.#isClosing(id, entry, family);
        if (isSwitch !== (isAdded === isLate)) continue;
        yield isAdded ? addLine(name, entry) : deleteLine(name, entry);
      }
    }
  }

  #isReplaced(name: string): boolean {
    const { before, after } = this.of("set").get(name) ?? {};
    return before !== undefined && after !== undefined && canBeSwapped(before, after);
  }

  /** Whether adding an entry admits packets that were refused. */
  #isOpening(id: SetId, entry: string, family: IpFamily): boolean {
    if (id === "SERVED") {
      // A new address receives no packets before it is added. An address with a virtual server, e.g.
      // of an earlier kube-proxy, was already served.
      const [name = "", frontend = ""] = entry.split(",");
      const isFresh = this.of("address").get(name)?.after !== undefined;
      const [protocol = "", port = ""] = frontend.split(":");
      const server = this.servers.get(serverKey({
        protocol: parseProtocol(protocol.toUpperCase()),
        address: parseIpAddress(name),
        port: Number(port),
      }))?.self;
      return !isFresh && server !== undefined && server.before === undefined;
    }
    if (!isSourceSet(id)) return false;
    // Without source ranges an address admits every client; with its entry but no range, none.
    const firewall = this.of(setName("LOAD-BALANCER-FW", family)).get(frontendOf(entry));
    return firewall === undefined || firewall.before !== undefined;
  }

  /** Whether removing an entry refuses packets. */
  #isClosing(id: SetId, entry: string, family: IpFamily): boolean {
    if (id === "SERVED") return true;
    if (!isSourceSet(id)) return false;
    const firewall = this.of(setName("LOAD-BALANCER-FW", family)).get(frontendOf(entry));
    return firewall === undefined || firewall.after !== undefined;
  }

  #rulesBefore(tables: ReadonlySet<IptablesTable>): string[] {
    const rules = this.of("rule").values().flatMap(({ after }) =>
      after === undefined ? [] : [after]
    ).toArray();
    const chains = [...this.of("chain")].map(([place, { after = "" }]) => {
      const [table = "", name = ""] = place.split(" ");
      const fixed = ruleLines(after);
      return { table, name, rules: name === FROM_CLUSTER ? [...fixed, ...rules] : fixed };
    });
    const isWhole = chains.some(({ name }) => name === FROM_CLUSTER);
    const appended = isWhole ? [] : rules.map((rule) => ({ from: FROM_CLUSTER, rule }));
    const jumps = [...this.of("jump").keys()].map((place) => {
      const [, table = "", from = "", rule = ""] = /^(\S+) (\S+) (.*)$/.exec(place) ?? [];
      return { table, from, rule };
    });
    return restoreLines(
      ALL_TABLES.filter((table) => tables.has(table)).map((table) => ({
        table,
        chains: chains.filter((chain) => chain.table === table),
        appended: table === "nat" ? appended : [],
        jumps: jumps.filter((jump) => jump.table === table),
      })),
    );
  }

  #rulesAfter(): string[] {
    // A chain that was written as a whole has none of them.
    if (this.of("chain").has(`nat ${FROM_CLUSTER}`)) return [];
    const removedJumps = [...this.of("rule").values()].flatMap(({ before, after }) =>
      before !== undefined && after === undefined ? { from: FROM_CLUSTER, rule: before } : []
    );
    return restoreLines([{ table: "nat", removedJumps }]);
  }

  *#addressLines(createsDevice: boolean): Generator<string> {
    if (createsDevice && this.of("device").size > 0) yield addDummyLine(IPVS_DEVICE);
    for (const isAdded of [true, false]) {
      // For an existing entry, "add" would be the last line that is read.
      const verb = isAdded ? "replace" : "del";
      for (const [name, { after }] of this.of("address")) {
        if ((after !== undefined) !== isAdded) continue;
        const address = name as IpAddress;
        yield addressLine(verb, { address, device: IPVS_DEVICE });
      }
    }
  }

  /** Additions to a server precede removals, so it never lacks an endpoint that it had and will have. */
  *#serverLines(
    drains: ReadonlyMap<ServerKey, ReadonlyMap<RealServerKey, unknown>>,
  ): Generator<string> {
    for (const [server, { self, reals }] of this.servers) {
      if (self !== undefined && self.after === undefined) {
        yield `-D ${server}`;
        continue;
      }
      const isNew = self !== undefined && self.before === undefined;
      if (isNew) yield `-A ${server} ${self.after}`;
      for (const [real, { before, after }] of reals) {
        if (after === undefined) continue;
        const isThere = before !== undefined || (!isNew && drains.get(server)?.has(real));
        yield realLine(isThere ? "-e" : "-a", server, real, after);
      }
      if (self !== undefined && !isNew) yield `-E ${server} ${self.after}`;
      for (const [real, { before, after }] of reals) {
        if (after !== undefined) continue;
        if (!isDrained(server)) yield deletionLine(realName(server, real));
        else if (!before?.endsWith(WEIGHT_0)) {
          yield realLine("-e", server, real, before?.replace(/\d$/, "0") ?? WEIGHT_0);
        }
      }
    }
  }
}

function put<Name>(changes: Map<Name, ObjectChange>, name: Name, change: ObjectChange): void {
  const result = merged(changes.get(name), change);
  if (result) changes.set(name, result);
  else changes.delete(name);
}

/** Returns nothing if the object stays. */
function merged(known: ObjectChange | undefined, change: ObjectChange): ObjectChange | undefined {
  const before = known?.before ?? change.before;
  const after = known?.after ?? change.after;
  if (before === after) return undefined;
  return { before, after, owner: change.after === undefined ? known?.owner : change.owner };
}

/** The line that removes a real server. */
export function deletionLine(name: string): string {
  const [server, real] = readRealName(name);
  return `-d ${server} -r ${real}`;
}

function isSourceSet(id: SetId): boolean {
  return id === "LOAD-BALANCER-SOURCE-CIDR" || id === "LOAD-BALANCER-SOURCE-IP";
}

/** Address, protocol and port of a longer entry. */
function frontendOf(entry: string): string {
  return entry.slice(0, entry.indexOf(",", entry.indexOf(",") + 1));
}

/** Collects lines in short steps. */
function* collect(tool: IpvsStep["tool"], each: Iterable<string>): Generator<void, IpvsStep> {
  const lines: string[] = [];
  for (const line of each) {
    if (lines.push(line) % LINES_PER_STEP === 0) yield;
  }
  return { tool, lines };
}

/** Returns the objects that a line of a tool other than `ipvsadm` may add. */
export function addedObjects(
  { tool }: IpvsStep,
  line: string,
  family: IpFamily,
): readonly ObjectName[] {
  const [verb, name = "", ...words] = line.split(" ");
  switch (tool) {
    case "ipset": {
      if (verb !== "add") return [];
      // The names of scratch sets are cut, so two sets of IPv6 have the same one.
      const sets = SET_IDS.map((id) => setName(id, family))
        .filter((each) => name === each || name === scratchName(each));
      return sets.map((kind) => ({ kind, name: words[0] ?? "" }));
    }
    case "ip": {
      const address = words[0]?.replace(/\/\d+$/, "") ?? "";
      return name === "replace" ? [{ kind: "address", name: address }] : [];
    }
    default: {
      const isRule = verb === "-A" && name === FROM_CLUSTER;
      return isRule ? [{ kind: "rule", name: normalRule(words.join(" ")) }] : [];
    }
  }
}
