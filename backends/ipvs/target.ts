/**
 * The objects of one family for the engine: the layout says what is wanted, and each kind of object
 * has its tool. A group is a ServicePort, or what belongs to none.
 *
 * Real servers of weight 0 that are not wanted are no difference: they wait for their connections to
 * end.
 *
 * @module
 */
import {
  type Batch,
  type KernelObject,
  type ObjectName,
  type Objects,
  Refusal,
} from "../../lib/engine/reconciler.ts";
import { type Cidr, cidrContains } from "../../lib/net/cidr.ts";
import { type IpAddress, ipFamilyOf } from "../../lib/net/ip_address.ts";
import { tryParsePort } from "../../lib/net/port.ts";
import type { Clock } from "../../lib/os/clock.ts";
import { TimeSlice, urgent } from "../../lib/os/time_slice.ts";
import type { SyncReport } from "../../lib/proxy/data_plane.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { IPVS_DEVICE } from "../iproute/dummy_devices.ts";
import { inSteps } from "../netfilter/in_steps.ts";
import { normalOptions, scratchName } from "../netfilter/ipset/ipset_text.ts";
import { ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { isSameRule, normalRule } from "../netfilter/iptables/rule_normal_form.ts";
import { leaveOut, RefusedItems } from "../netfilter/refused_items.ts";
import type { RuleTarget } from "../netfilter/rule_backend.ts";
import { BASE_JUMPS, baseChains, type BaseRuleContext, FROM_CLUSTER } from "./base_rules.ts";
import {
  addedObjects,
  deletionLine,
  IpvsChanges,
  type ServerChange,
  type ServerChanges,
} from "./changes.ts";
import { DrainList, isDrained } from "./drain_list.ts";
import { SET_IDS, setName, setOptions } from "./ipset_table.ts";
import { type IpvsRunner, type KernelReading, StepRefusal } from "./ipvs_runner.ts";
import type { IpvsLayout, WantedServer } from "./layout.ts";
import { fixedObjects, readRealName, realName, serviceObjects, WEIGHT_0 } from "./objects.ts";
import { isOwnServer } from "./own_server.ts";
import { mayBeSeconds, type SeenRealServer, type SeenServer } from "./proc_ip_vs.ts";
import type { RenderInputs } from "./render_service.ts";
import { type IpvsStep, WriteFigures } from "./steps.ts";
import { looksForeign, type TakenServers } from "./taken_servers.ts";
import { addressOfServer, type ServerKey, setupText } from "./virtual_server.ts";
import { NO_BOUNDS, type WriteBounds } from "./write_room.ts";

/** What belongs to no Service. */
interface FixedItem {
  readonly context: BaseRuleContext;
  readonly objects: readonly KernelObject[];
}

/** A ServicePort as it is served. */
interface ServiceItem {
  readonly plan: ServicePlan;
  readonly inputs: RenderInputs;
}

const FIXED = "fixed";
type Key = ServicePortKey | typeof FIXED;
type Item = FixedItem | ServiceItem;

interface TargetDependencies {
  readonly clock: Clock;
  readonly runner: Pick<IpvsRunner, "makeDevice" | "read" | "run" | "servers">;
  /** Where servers of other programs are reported. @default {they are not} */
  readonly taken?: TakenServers;
}

interface TargetOptions {
  /** `ipvs.excludeCIDRs`: addresses of another program. */
  readonly excludeCidrs: readonly Cidr[];
  /** Maximum time for connections to end, milliseconds; 0 = unlimited. */
  readonly drainTimeoutMs: number;
  /** Whether another process serves: flags of schedulers, which the kernel does not list, are as wanted. */
  readonly isForeign?: boolean;
}

/** Operations on virtual servers in a write. The next write continues with what exceeds them. */
const BOUNDS: WriteBounds = { ofService: 512, together: 4_096 };
/** The setup of a server that was found, if it is another than the wanted one. */
const OTHER_SETUP = "another scheduler or persistence";

/** The virtual servers, sets, addresses and rules of one family. */
export class IpvsTarget implements RuleTarget<IpvsLayout> {
  readonly comparesLayouts = true;
  readonly refused = new RefusedItems();
  /** The virtual servers that the kernel is known to have, and the setup of those with flags. */
  readonly servers = new Map<ServerKey, string>();
  /** The addresses that the device is known to have. */
  readonly addresses = new Set<IpAddress>();
  readonly drains: DrainList;
  readonly #dependencies: TargetDependencies;
  readonly #options: TargetOptions;
  /** Where the work is counted. */
  #figures = new WriteFigures();
  /** Whether the next write has to be complete. */
  #isWhole = true;
  #layout: IpvsLayout | undefined;
  #unwritten: ServerChanges = new Map();
  /** Whether the state was read, and not written since. */
  #wasRead = false;
  #isTakeover = false;
  #foundRules: readonly string[] | undefined;
  #failedRestores = 0;

  constructor(dependencies: TargetDependencies, options: TargetOptions) {
    this.#dependencies = dependencies;
    this.#options = options;
    this.drains = new DrainList(options.drainTimeoutMs);
  }

  /** The wanted state; set before anything is asked. */
  get layout(): IpvsLayout {
    if (this.#layout === undefined) throw new Error("Cannot lay out objects before a first plan");
    return this.#layout;
  }

  set layout(layout: IpvsLayout) {
    if (layout === this.#layout) return;
    if (this.#layout) layout.touch([...this.#layout.keys, ...this.#layout.dirty]);
    this.#layout = layout;
  }

  get operations(): Readonly<Record<string, number>> {
    return this.#figures.operations;
  }

  countAnew(): void {
    this.#figures = new WriteFigures();
  }

  /** Whether the next write continues this one. */
  get report(): Pick<SyncReport, "isUnfinished"> {
    const isUnfinished = this.#unwritten.size > 0 || this.#layout?.hasPostponed === true;
    return isUnfinished ? { isUnfinished } : {};
  }

  prepare({ isWhole }: { readonly isWhole: boolean }): void {
    this.#isWhole = isWhole;
    this.layout.setPostponed();
  }

  /** Restores of rules that failed. */
  get failedRestores(): number {
    return this.#failedRestores;
  }

  /** The rules of {@linkcode FROM_CLUSTER} when it was read; `undefined` = there is no such chain. */
  get foundRules(): readonly string[] | undefined {
    return this.#foundRules;
  }

  *keys(): Generator<Key> {
    yield FIXED;
    yield* this.layout.keys;
  }

  *dirty(): Generator<Key> {
    yield FIXED;
    yield* this.layout.dirty;
  }

  settle(): void {
    this.#wasRead = false;
    this.#isTakeover = false;
    this.layout.settle();
  }

  arrange(key: Key, applied: Item | undefined): Item | undefined {
    const { layout } = this;
    if (key === FIXED) return this.#fixedItem(applied);
    const plan = layout.plan(key);
    if (plan === undefined) return undefined;
    const isSame = applied !== undefined && "plan" in applied && applied.plan === plan &&
      applied.inputs === layout.inputs;
    return isSame ? applied : { plan, inputs: layout.inputs };
  }

  objectsOf(item: Item): Iterable<KernelObject> {
    return "objects" in item ? item.objects : serviceObjects(item.plan, item.inputs);
  }

  ownerOf(item: Item): ServicePortKey | undefined {
    return "objects" in item ? undefined : item.plan.key;
  }

  /** A scratch set of a killed run goes with the next write of sets. */
  isUnused({ kind, name }: ObjectName): boolean {
    if (kind === "real") return this.drains.has(...readRealName(name));
    return kind === "set" && name.startsWith("NEW-");
  }

  async read(): Promise<Objects> {
    const { runner } = this.#dependencies;
    this.#unwritten = new Map();
    this.#wasRead = true;
    this.#figures.read();
    const reading = await runner.read(this.servers.keys());
    const addresses = this.#ownAddresses(reading);
    this.addresses.clear();
    for (const address of addresses) this.addresses.add(address);
    this.#isTakeover = servesAnotherMode(reading);
    const texts = (names: Iterable<string>) => new Map([...names].map((name) => [name, ""]));
    return new Map<string, ReadonlyMap<string, string>>([
      ["device", new Map(reading.device ? [[IPVS_DEVICE, "type dummy"]] : [])],
      ["address", texts(addresses)],
      ...this.#readSets(reading),
      ...await this.#readRules(reading),
      ...await this.#readServers(reading),
    ]);
  }

  begin(): Batch<ServicePortKey> {
    const changes = new IpvsChanges(this.#unwritten);
    return {
      add: (object, before, after, owner) => changes.add(object, before, after, owner),
      commit: () => this.#write(changes),
    };
  }

  leaveOut(reasons: ReadonlyMap<ServicePortKey, string>): boolean {
    return leaveOut(this.layout, reasons, this.refused, this.#dependencies.clock);
  }

  /** Returns the ServicePorts that need objects which several may need, by kind and name. */
  async ownersOf(
    objects: Iterable<ObjectName>,
  ): Promise<ReadonlyMap<string, readonly ServicePortKey[]>> {
    const slice = new TimeSlice(urgent(this.#dependencies.clock));
    const wanted = new Set([...objects].map(idOf));
    const owners = new Map<string, ServicePortKey[]>();
    for (const key of wanted.size === 0 ? [] : this.layout.keys) {
      const turn = slice.pause();
      if (turn) await turn;
      for (const object of serviceObjects(this.layout.plan(key)!, this.layout.inputs)) {
        const id = idOf(object);
        if (!wanted.has(id)) continue;
        const found = owners.getOrInsertComputed(id, () => []);
        if (!found.includes(key)) found.push(key);
      }
    }
    return owners;
  }

  /** Removes drained real servers, according to those seen in the kernel, and returns their number. */
  async removeDrained(seen: readonly SeenServer[]): Promise<number> {
    const { clock, runner } = this.#dependencies;
    const due = this.drains.due(seen, clock.now());
    if (due.length === 0) return 0;
    const lines = due.map(({ server, real }) => deletionLine(server, real));
    await runner.run({ tool: "ipvsadm", lines });
    for (const { server, real } of due) this.drains.remove(server, real);
    return due.length;
  }

  #fixedItem(applied: Item | undefined): FixedItem {
    const context = this.layout.ruleContext;
    const isSame = applied !== undefined && "objects" in applied &&
      applied.context.options === context.options &&
      applied.context.localTraffic === context.localTraffic &&
      applied.context.masqueradeInternal === context.masqueradeInternal;
    return isSame ? applied : { context, objects: [...fixedObjects(context)] };
  }

  async #write(changes: IpvsChanges): Promise<void> {
    const { clock, runner } = this.#dependencies;
    const isTakeover = this.#isTakeover;
    const { steps, unwritten, written } = await inSteps(
      { clock },
      changes.steps({
        family: this.layout.options.family,
        // The other mode serves until all is there.
        bounds: this.#isWhole || isTakeover ? NO_BOUNDS : BOUNDS,
        drains: this.drains,
        isTakeover,
      }),
    );
    const wasRead = this.#wasRead;
    if (changes.of("device").size > 0 || (wasRead && steps.length > 0)) {
      await runner.makeDevice();
    }
    for (const step of steps) {
      await this.#run(step, changes, written);
      this.#figures.add(step);
    }
    this.#unwritten = unwritten;
    this.#note(changes, written);
  }

  async #run(step: IpvsStep, changes: IpvsChanges, written: ServerChanges): Promise<void> {
    if (step.tool === "ipvsadm") {
      // Even a failed write may make a server, or give it other flags.
      for (const [key, { self }] of written) if (self) this.servers.set(key, "");
    }
    try {
      await this.#dependencies.runner.run(step);
    } catch (error) {
      if (step.tool === "iptables") this.#failedRestores++;
      if (!(error instanceof StepRefusal)) throw error;
      const owners = step.tool === "ipvsadm"
        ? await this.#ownersOfServers(error, written)
        : await this.#ownersOfLine(error, step, changes);
      if (owners === undefined) return;
      const reasons = new Map([...owners].map((owner) => [owner, error.message]));
      throw new Refusal(reasons, error, { isPartial: true });
    }
  }

  /** All of it was written. */
  #note(changes: IpvsChanges, written: ServerChanges): void {
    const now = this.#dependencies.clock.now();
    for (const [name, { after }] of changes.of("address")) {
      if (after === undefined) this.addresses.delete(name as IpAddress);
      else this.addresses.add(name as IpAddress);
    }
    for (const [key, { self, reals }] of written) {
      if (self && self.after === undefined) {
        this.servers.delete(key);
        this.drains.remove(key);
      } else if (self?.after?.includes(" -b ")) this.servers.set(key, self.after);
      for (const [real, { after }] of reals) {
        if (after !== undefined || !isDrained(key)) this.drains.remove(key, real);
        else this.drains.add(key, real, now);
      }
    }
  }

  /**
   * Neither the messages of `ipvsadm -R` nor their order are reliable. Returns the owners of servers
   * that are not as they should be; `undefined` = there are none. They were refused, or come after a
   * line at which the program stopped. In that case there are fewer messages than servers, and the
   * first ones are blamed.
   */
  async #ownersOfServers(
    { complaints }: StepRefusal,
    written: ServerChanges,
  ): Promise<Iterable<ServicePortKey> | undefined> {
    const { runner, taken } = this.#dependencies;
    const made = [...written].flatMap(([key, { self }]) => self && !self.after ? [] : key);
    const seen = new Map((await runner.servers(made)).map((server) => [server.key, server]));
    const different: ServerKey[] = [];
    for (const [key, change] of written) {
      const [found, wanted] = [seen.get(key), this.layout.server(key)];
      const isNew = change.self !== undefined && change.self.before === undefined;
      // The next write reads and changes a server that already existed.
      if (isNew && found && wanted && looksForeign(found, wanted)) taken?.note(key, wanted);
      if (!isAsWritten(change, found, wanted)) different.push(key);
    }
    if (different.length === 0) return undefined;
    const owners = different.flatMap((key) => this.layout.server(key)?.owner ?? []);
    return new Set(owners.slice(0, Math.max(1, complaints)));
  }

  async #ownersOfLine(
    { line = 0 }: StepRefusal,
    step: IpvsStep,
    changes: IpvsChanges,
  ): Promise<Iterable<ServicePortKey>> {
    const { lines } = step;
    // iptables-legacy names no line that the kernel refuses, so rules added to accepted ones are
    // blamed. None if the chain was written as a whole.
    const isUnclear = lines[line - 1] === "COMMIT" &&
      !changes.of("chain").has(`nat ${FROM_CLUSTER}`);
    const start = isUnclear ? lines.lastIndexOf("*nat", line - 1) : line - 1;
    const blamed = lines.slice(Math.max(0, start), line).flatMap((each) =>
      addedObjects(step, each, this.layout.options.family)
    );
    return new Set([...(await this.ownersOf(blamed)).values()].flat());
  }

  #ownAddresses({ device = new Set() }: KernelReading): readonly IpAddress[] {
    const { family } = this.layout.options;
    return [...device].filter((address) =>
      // The kernel adds a link-local address to each device that is up.
      ipFamilyOf(address) === family && !address.startsWith("fe80:")
    );
  }

  *#readSets(
    { sets }: KernelReading,
  ): Generator<readonly [string, ReadonlyMap<string, string>]> {
    const { family } = this.layout.options;
    const found = new Map<string, string>();
    for (const id of SET_IDS) {
      const name = setName(id, family);
      const [set, scratch] = [sets.get(name), sets.get(scratchName(name))];
      if (scratch) found.set(scratchName(name), scratch.options);
      if (set === undefined) continue;
      found.set(name, set.options);
      // A set with other options is replaced, with all entries.
      if (set.options !== normalOptions(setOptions(id, family))) continue;
      yield [name, new Map([...set.entries].map((entry) => [entry, ""]))];
    }
    yield ["set", found];
  }

  /** The order of rules of Services is ignored. */
  async #readRules(
    { tables }: KernelReading,
  ): Promise<readonly (readonly [string, ReadonlyMap<string, string>])[]> {
    const chains = new Map<string, string>();
    const own = new Map<string, string>();
    this.#foundRules = tables.nat.chains.get(FROM_CLUSTER);
    for (const { table, name, rules } of baseChains(this.layout.ruleContext)) {
      const found = tables[table].chains.get(name);
      if (found === undefined) continue;
      const wanted = rules.map(ruleText);
      const isOfServices = name === FROM_CLUSTER;
      const fixed = isOfServices ? found.slice(0, wanted.length) : found;
      const isSame = fixed.length === wanted.length &&
        wanted.every((rule, index) => isSameRule(rule, fixed[index]!));
      chains.set(`${table} ${name}`, (isSame ? wanted : found).join("\n"));
      if (!isOfServices || !isSame) continue;
      const texts = found.length > fixed.length ? await this.rulesOfServices() : new Map();
      for (const rule of found.slice(fixed.length)) {
        const text = texts.get(normalRule(rule)) ?? rule;
        own.set(own.has(text) ? `${rule} ` : text, "");
      }
    }
    const jumps = BASE_JUMPS.filter(({ table, from, rule }) => {
      const wanted = normalRule(ruleText(rule));
      return (tables[table].builtIn.get(from) ?? []).some((each) => normalRule(each) === wanted);
    });
    const names = jumps.map(({ table, from, rule }) => `${table} ${from} ${ruleText(rule)}`);
    return [
      ["chain", chains],
      ["rule", own],
      ["jump", new Map(names.map((name) => [name, ""]))],
    ];
  }

  /** The rules of single Services, by their normal form. */
  async rulesOfServices(): Promise<ReadonlyMap<string, string>> {
    const slice = new TimeSlice(urgent(this.#dependencies.clock));
    const rules = new Map<string, string>();
    for (const key of this.layout.keys) {
      const turn = slice.pause();
      if (turn) await turn;
      for (const { kind, name } of serviceObjects(this.layout.plan(key)!, this.layout.inputs)) {
        if (kind === "rule") rules.set(normalRule(name), name);
      }
    }
    return rules;
  }

  async #readServers(
    reading: KernelReading,
  ): Promise<readonly (readonly [string, ReadonlyMap<string, string>])[]> {
    const { clock, taken } = this.#dependencies;
    const slice = new TimeSlice(urgent(clock));
    const known = new Map(this.servers);
    const [servers, reals] = [new Map<string, string>(), new Map<string, string>()];
    this.servers.clear();
    for (const seen of reading.servers) {
      const turn = slice.pause();
      if (turn) await turn;
      const { key } = seen;
      const wanted = this.layout.server(key);
      const setup = known.get(key);
      const { excludeCidrs } = this.#options;
      // Servers that this process applied are its own, even if no address or set proves it.
      const isKnown = wanted !== undefined || setup !== undefined;
      if (!isKnown && !this.#isOurs(seen, reading, excludeCidrs)) continue;
      // An excluded server may belong to an earlier run.
      const isTaken = wanted !== undefined && setup === undefined && taken !== undefined &&
        !this.#isOurs(seen, reading, []) && looksForeign(seen, wanted);
      if (isTaken) taken.note(key, wanted);
      this.servers.set(key, setup ?? "");
      servers.set(key, wanted ? this.#setupOf(seen, wanted, setup) : key);
      for (const real of seen.reals) {
        const text = weightOf(real);
        reals.set(realName(key, real.key), text);
        if (real.weight !== 0 || !isDrained(key)) this.drains.remove(key, real.key);
        else this.drains.add(key, real.key, clock.now());
      }
    }
    return [["server", servers], ["real", reals]];
  }

  /** Whether this mode, or a kube-proxy before it, created a virtual server of this family. */
  #isOurs(
    { key }: SeenServer,
    { noted, device = new Set(), sets }: KernelReading,
    excludeCidrs: readonly Cidr[],
  ): boolean {
    const { family, nodeAddresses } = this.layout.options;
    const { protocol, address, port } = addressOfServer(key) ?? {};
    if (address === undefined || protocol === undefined || port === undefined) return false;
    if (ipFamilyOf(address) !== family || tryParsePort(port) === undefined) return false;
    if (excludeCidrs.some((cidr) => cidrContains(cidr, address))) return false;
    const name = protocol === "TCP" ? "tcp" : protocol === "UDP" ? "udp" : "sctp";
    const nodePortAddresses = sets.get(setName("NODE-PORT-IPS", family))?.entries ?? new Set();
    return isOwnServer({ protocol: name, address, port }, {
      ...{ noted, deviceAddresses: device, nodeAddresses, excludeCidrs },
      nodePortAddresses: nodePortAddresses as ReadonlySet<IpAddress>,
    });
  }

  /**
   * The kernel lists neither the flags of a scheduler nor exact seconds. A server that may have other
   * flags than this process gave it is edited in place, which affects no connection. A process that
   * only compares takes them for the wanted ones.
   */
  #setupOf(seen: SeenServer, { server }: WantedServer, known: string | undefined): string {
    const setup = setupText(server);
    const mayMatch = seen.scheduler === server.scheduler && !seen.isOnePacket &&
      mayBeSeconds(seen.persistenceTicks, server.persistenceSeconds);
    if (!mayMatch) return OTHER_SETUP;
    const mayHaveFlags = ["mh", "sh"].includes(seen.scheduler) && !this.#options.isForeign;
    return !mayHaveFlags || known === setup ? setup : OTHER_SETUP;
  }
}

/** Whether the chains are those of another mode or of kube-proxy. */
function servesAnotherMode({ tables: { nat } }: KernelReading): boolean {
  const rules = nat.chains.get("KUBE-SERVICES") ?? [];
  return rules.length > 0 && !rules.some((rule) => rule.includes(FROM_CLUSTER));
}

function weightOf({ forwarding, weight }: SeenRealServer): string {
  return forwarding === "masquerade" ? `weight ${weight}` : "another forwarding";
}

/** Whether a server is as it was written, as far as it can be read. */
function isAsWritten(
  { self, reals }: ServerChange,
  found: SeenServer | undefined,
  wanted: WantedServer | undefined,
): boolean {
  if (self && self.after === undefined) return found === undefined;
  if (found === undefined) return false;
  const { scheduler, persistenceSeconds } = wanted?.server ?? {};
  if (self && scheduler !== found.scheduler) return false;
  if (self && !mayBeSeconds(found.persistenceTicks, persistenceSeconds)) return false;
  const texts = new Map(found.reals.map((real) => [real.key, weightOf(real)]));
  return [...reals].every(([real, { after }]) => {
    const text = texts.get(real);
    return after === undefined ? text === undefined || text === WEIGHT_0 : text === after;
  });
}

function idOf({ kind, name }: ObjectName): string {
  return `${kind} ${name}`;
}
