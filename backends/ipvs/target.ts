/**
 * The objects of one family for the engine: the layout says what is wanted, and each kind of object
 * has its tool. A group is a ServicePort, or what belongs to none.
 *
 * Real servers of weight 0 that are not wanted are no difference: they wait for their connections to
 * end. After a restart, those in the kernel are the list, with a time of its own.
 *
 * @module
 */
import {
  type Batch,
  type KernelObject,
  type ObjectChange,
  type ObjectName,
  type Objects,
  type Reading,
  Refusal,
} from "../../lib/engine/reconciler.ts";
import type { Cidr } from "../../lib/net/cidr.ts";
import { type IpAddress, ipFamilyOf } from "../../lib/net/ip_address.ts";
import type { DataPlaneEdges } from "../../lib/engine/data_plane.ts";
import { TimeSlice, urgent } from "../../lib/os/time_slice.ts";
import type { SyncReport } from "../../lib/proxy/data_plane.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { IPVS_DEVICE } from "../iproute/dummy_devices.ts";
import { PodFailure } from "../iproute/pod_tunnels.ts";
import { inSteps } from "../netfilter/in_steps.ts";
import { normalOptions, scratchName } from "../netfilter/ipset/ipset_text.ts";
import { ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { isSameRule, normalRule } from "../netfilter/iptables/rule_normal_form.ts";
import { IptablesError } from "../netfilter/iptables/iptables_runner.ts";
import { quarantineRefused, RefusedItems } from "../netfilter/refused_items.ts";
import type { RuleTarget } from "../netfilter/rule_backend.ts";
import { BatchRefusal } from "../netfilter/tool_batch.ts";
import type { ReplyDevice } from "./dsr.ts";
import { messageOf } from "../../lib/log/message_of.ts";
import {
  BASE_JUMPS,
  baseChains,
  type BaseRuleContext,
  FROM_CLUSTER,
  replyRules,
} from "./base_rules.ts";
import { addedObjects, deletionLine, IpvsChanges, type ServerChange } from "./changes.ts";
import { SET_IDS, setName, setOptions } from "./ipset_table.ts";
import type { IpvsRunner, IpvsStep } from "./ipvs_runner.ts";
import type { IpvsLayout } from "./layout.ts";
import {
  fixedObjects,
  readRealName,
  realChanges,
  realName,
  type ServiceItem,
  serviceObjects,
  TUNNELLED,
  WEIGHT_0,
  WriteRoom,
} from "./objects.ts";
import {
  describeServer,
  isDrained,
  isOwnServer,
  isSameSetup,
  type RealServerKey,
  type SeenRealServer,
  type SeenServer,
  type ServerKey,
} from "../netfilter/virtual_servers.ts";

const FIXED = "fixed";
type Key = ServicePortKey | typeof FIXED;
/** What belongs to no Service, or a ServicePort. */
type Item =
  | { readonly context: BaseRuleContext; readonly objects: readonly KernelObject[] }
  | ServiceItem;

interface TargetOptions {
  /** `ipvs.excludeCIDRs`: addresses of another program. */
  readonly excludeCidrs: readonly Cidr[];
  /** Maximum time for connections to end, milliseconds; 0 = unlimited. */
  readonly drainTimeoutMs: number;
  /** Whether another process serves: flags of schedulers, which the kernel does not list, are as wanted. */
  readonly isForeign?: boolean;
}

/** Time until a pod that could not be set up is tried again: each time, everything is read. */
const POD_RETRY_MS = 30_000;
/** Maximum number of foreign servers in `status`. */
const MOST_NAMED = 3;
/** Maximum number of log lines: another program, such as kube-router, may have thousands of servers. */
const MOST_LOGGED = 20;
const CURE = "give the Service or the other software another address or port";

/** The virtual servers, sets, addresses and rules of one family. */
export class IpvsTarget implements RuleTarget<IpvsLayout> {
  readonly comparesLayouts = true;
  readonly refused = new RefusedItems();
  /** Lines for each tool, processes and reads, by name. */
  operations: Record<string, number> = {};
  /** Restores of rules that failed. */
  failedRestores = 0;
  /** The virtual servers that the kernel is known to have, and the setup of those with flags. */
  readonly servers = new Map<ServerKey, string>();
  /** The addresses that the device is known to have. */
  readonly addresses = new Set<IpAddress>();
  /** Real servers of weight 0 by virtual server, and the time since when. */
  readonly drains = new Map<ServerKey, Map<RealServerKey, number>>();
  readonly #edges: Pick<DataPlaneEdges, "clock" | "logger">;
  readonly #runner: Pick<
    IpvsRunner,
    "makeDevice" | "pods" | "read" | "run" | "servers" | "tryRules"
  >;
  readonly #options: TargetOptions;
  #layout: IpvsLayout | undefined;
  /** What large Services have of the next write; `undefined` = the state was read, and all is written. */
  #room: WriteRoom | undefined;
  /** ServicePorts that the next write continues. */
  #waiting: ReadonlySet<ServicePortKey> = new Set();
  /** Virtual servers at addresses of ServicePorts that no earlier run made. */
  readonly #strangers = new Map<ServerKey, ServicePortKey>();
  /** The first of them that were changed since the process started. */
  readonly #taken = new Set<ServerKey>();
  #isTakeover = false;
  /** Whether the kernel has taken rules for replies. */
  #takesReplies = false;

  constructor(
    edges: Pick<DataPlaneEdges, "clock" | "logger">,
    runner: Pick<IpvsRunner, "makeDevice" | "pods" | "read" | "run" | "servers" | "tryRules">,
    options: TargetOptions,
  ) {
    this.#edges = edges;
    this.#runner = runner;
    this.#options = options;
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

  countAnew(): void {
    this.operations = {};
  }

  /** Whether the next write continues this one. */
  get report(): Pick<SyncReport, "isUnfinished"> {
    return this.#waiting.size > 0 ? { isUnfinished: true } : {};
  }

  /** The foreign servers that were changed and are still in use, for `status`; `undefined` = none. */
  get taken(): string | undefined {
    const still = [...this.#taken].filter((key) => this.servers.has(key));
    if (still.length === 0) return undefined;
    const named = still.slice(0, MOST_NAMED).map(describeServer).join(", ");
    const orMore = this.#taken.size === MOST_LOGGED ? " or more" : "";
    const others = still.length - MOST_NAMED;
    const more = others > 0 ? ` and ${others}${orMore} others` : "";
    return `foreign virtual servers were changed at ${named}${more}: ${CURE}`;
  }

  *keys(): Generator<Key> {
    yield FIXED;
    yield* this.layout.keys;
  }

  /** What waited for this write comes last, so that no other change waits for it. */
  *dirty(): Generator<Key> {
    const { dirty } = this.layout;
    yield FIXED;
    yield* dirty;
    for (const key of this.#waiting) if (!dirty.has(key)) yield key;
  }

  settle(): void {
    this.#waiting = new Set(this.#room?.waiting);
    this.#isTakeover = false;
    this.layout.settle();
  }

  arrange(key: Key, applied: Item | undefined): Item | undefined {
    const { layout } = this;
    if (key === FIXED) {
      const context = layout.ruleContext;
      const isSame = applied !== undefined && "objects" in applied &&
        applied.context.options === context.options &&
        applied.context.localTraffic === context.localTraffic &&
        applied.context.masqueradeInternal === context.masqueradeInternal &&
        applied.context.hasDsr === context.hasDsr &&
        applied.context.replyDevices === context.replyDevices;
      return isSame ? applied : { context, objects: [...fixedObjects(context)] };
    }
    const plan = layout.plan(key);
    if (plan === undefined) return undefined;
    const last = applied !== undefined && "plan" in applied ? applied : undefined;
    const lostPods = layout.lostPodsOf(key);
    const isSame = last?.plan === plan && last.inputs === layout.inputs &&
      last.lostPods === lostPods && last.reals === undefined;
    if (isSame) return last;
    const item = { plan, inputs: layout.inputs, lostPods };
    return this.#room ? this.#room.fit(item, last) : item;
  }

  objectsOf(item: Item): Iterable<KernelObject> {
    return "objects" in item ? item.objects : serviceObjects(item);
  }

  /** Between two parts of a large Service only its real servers change. */
  changesOf(applied: Item | undefined, item: Item | undefined): Iterable<ObjectChange> | undefined {
    if (!applied || !item || !("plan" in applied) || !("plan" in item)) return undefined;
    const isSame = applied.plan === item.plan && applied.inputs === item.inputs &&
      applied.lostPods === item.lostPods;
    return isSame ? realChanges(applied, item) : undefined;
  }

  ownerOf(item: Item): ServicePortKey | undefined {
    return "objects" in item ? undefined : item.plan.key;
  }

  /** The kernel lists neither the flags of a scheduler nor exact seconds. */
  isSame({ kind, name }: ObjectName, found: string, wanted: string): boolean {
    if (kind === "rule") return true;
    if (kind !== "server" || !isSameSetup(found, wanted)) return false;
    // One that may have other flags is edited in place, which affects no connection.
    const mayHaveFlags = /^-s (mh|sh)\b/.test(found) && !this.#options.isForeign;
    return !mayHaveFlags || this.servers.get(name as ServerKey) === wanted;
  }

  /** A scratch set of a killed run goes with the next write of sets. */
  isUnused({ kind, name }: ObjectName): boolean {
    if (kind === "real") {
      const [server, real] = readRealName(name);
      return this.drains.get(server)?.has(real) ?? false;
    }
    return kind === "set" && name.startsWith("NEW-");
  }

  async read(): Promise<Objects> {
    const { clock } = this.#edges;
    const { layout } = this;
    const { family, nodeAddresses } = layout.options;
    this.#room = undefined;
    this.#count("reads", 1);
    const { device, noted, servers: allServers, sets, tables } = await this.#runner.read(
      this.servers.keys(),
    );
    const found = new Map<string, Map<string, string>>();
    const put = (kind: string, name: string, text = "") =>
      found.getOrInsertComputed(kind, () => new Map()).set(name, text);
    // While the chains are those of another mode or of kube-proxy, they serve.
    const portals = tables.nat.chains.get("KUBE-SERVICES") ?? [];
    this.#isTakeover = portals.length > 0 && !portals.some((rule) => rule.includes(FROM_CLUSTER));

    if (device) put("device", IPVS_DEVICE, "type dummy");
    this.addresses.clear();
    for (const address of device ?? []) {
      // The kernel adds a link-local address to each device that is up.
      if (ipFamilyOf(address) !== family || address.startsWith("fe80:")) continue;
      this.addresses.add(address);
      put("address", address);
    }

    for (const id of SET_IDS) {
      const name = setName(id, family);
      const [set, scratch] = [sets.get(name), sets.get(scratchName(name))];
      if (scratch) put("set", scratchName(name), scratch.options);
      if (set) put("set", name, set.options);
      // A set with other options is replaced, with all entries.
      if (set?.options !== normalOptions(setOptions(id, family))) continue;
      for (const entry of set.entries) put(name, entry);
    }

    for (const { table, name, rules } of baseChains(layout.ruleContext)) {
      const chain = tables[table].chains.get(name);
      if (chain === undefined) continue;
      const wanted = rules.map(ruleText);
      const isOfServices = name === FROM_CLUSTER;
      const fixed = isOfServices ? chain.slice(0, wanted.length) : chain;
      const isSame = fixed.length === wanted.length &&
        wanted.every((rule, index) => isSameRule(rule, fixed[index]!));
      put("chain", `${table} ${name}`, (isSame ? wanted : chain).join("\n"));
      // The order of rules of Services is ignored.
      for (const rule of isOfServices && isSame ? chain.slice(fixed.length) : []) {
        const normal = normalRule(rule);
        put("rule", found.get("rule")?.has(normal) ? `${normal} ` : normal, rule);
      }
    }
    for (const { table, from, rule } of BASE_JUMPS) {
      const text = ruleText(rule);
      const wanted = normalRule(text);
      const there = tables[table].builtIn.get(from) ?? [];
      if (there.some((each) => normalRule(each) === wanted)) {
        put("jump", `${table} ${from} ${text}`);
      }
    }

    const [known, draining] = [new Map(this.servers), new Map(this.drains)];
    this.servers.clear();
    this.drains.clear();
    const take = (seen: SeenServer) => {
      this.servers.set(seen.key, known.get(seen.key) ?? "");
      put("server", seen.key, seen.setup);
      for (const real of seen.reals) {
        put("real", realName(seen.key, real.key), weightOf(real));
        if (real.weight > 0 || !isDrained(seen.key)) continue;
        const since = draining.get(seen.key)?.get(real.key) ?? clock.now();
        this.#noteReal(seen.key, real.key, since);
      }
    };
    const lost = sets.get(setName("NODE-PORT-IPS", family))?.entries ?? new Set();
    const ownership = {
      ...{ noted, deviceAddresses: device ?? new Set<IpAddress>() },
      nodeAddresses: new Set<string>(nodeAddresses).union(lost),
    };
    // Whether this mode, or a kube-proxy before it, created a virtual server of this family.
    const isOurs = (server: SeenServer, excludeCidrs: readonly Cidr[]) =>
      ipFamilyOf(server.address) === family && server.port !== 0 &&
      isOwnServer(server, { ...ownership, excludeCidrs });
    const others: SeenServer[] = [];
    const slice = new TimeSlice(urgent(clock));
    for (const seen of allServers) {
      const turn = slice.pause();
      if (turn) await turn;
      // Servers that this process applied are its own, even if no address or set proves it.
      if (known.has(seen.key) || isOurs(seen, this.#options.excludeCidrs)) take(seen);
      else others.push(seen);
    }
    // An entry is the sign that pods may have been set up.
    if (layout.pods.size > 0 || sets.get(setName("DSR", family))?.entries.size) {
      // Where they can't be read, pods are left out below, and Services are served.
      for (const [pod, addresses] of await this.#runner.pods.read(layout.pods).catch(() => [])) {
        for (const address of addresses) put("pod", `${pod} ${address}`);
      }
      await this.prepare();
    }
    const owners = await this.ownersOf(others.map(({ key }) => ({ kind: "server", name: key })));
    this.#strangers.clear();
    for (const seen of others) {
      const owner = owners.get(`server ${seen.key}`)?.[0];
      if (owner === undefined) continue;
      take(seen);
      // An excluded server may belong to an earlier run.
      if (!isOurs(seen, [])) this.#strangers.set(seen.key, owner);
    }
    return found;
  }

  /** Finds the pods that need addresses of Services, before their objects are asked for. */
  async prepare(): Promise<void> {
    const { layout } = this;
    const { pods, ruleContext: { replyDevices } } = layout;
    if (pods.size === 0 && replyDevices.length === 0) return;
    layout.retryPods(this.#edges.clock.now());
    const { found, lost } = await this.#runner.pods.find(pods);
    const devices = new Map<string, number>();
    for (const { device, mtu } of found.values()) {
      devices.set(device, Math.min(mtu, devices.get(device) ?? mtu));
    }
    const names = [...devices.keys()].sort();
    const wanted = names.map((name) => ({ name, mtu: devices.get(name)! }));
    const refusal = await this.#refusalOf(wanted);
    if (refusal === undefined) layout.setPods(lost, wanted);
    else layout.setPods(new Map([...pods].map((pod) => [pod, refusal])), []);
  }

  /** Why the kernel takes no rules for replies; asked once, since one such rule would fail all others. */
  async #refusalOf(devices: readonly ReplyDevice[]): Promise<string | undefined> {
    const [device] = devices;
    if (device === undefined || this.#takesReplies || this.#options.isForeign) return undefined;
    try {
      const rules = replyRules(device, this.layout.options.family).map(ruleText);
      // The set may not be there yet.
      await this.#runner.tryRules(rules.map((rule) => rule.replace(/-m set .*? src /, "")));
      this.#takesReplies = true;
      return undefined;
    } catch (error) {
      return messageOf(error);
    }
  }

  begin(reading: Reading | undefined): Batch<ServicePortKey> {
    // The other mode serves until all is there; so it is after a restart.
    this.#room = reading === undefined ? new WriteRoom() : undefined;
    const changes = new IpvsChanges();
    return {
      add: (object, before, after, owner) => changes.add(object, before, after, owner),
      commit: () => this.#write(changes),
    };
  }

  leaveOut(reasons: ReadonlyMap<ServicePortKey, string>): boolean {
    // Pods are left out already.
    if (reasons.size === 0) return true;
    return quarantineRefused(this.layout, reasons, this.refused, this.#edges.clock);
  }

  /** Returns the ServicePorts that need objects which several may need, by kind and name. */
  async ownersOf(
    objects: Iterable<ObjectName>,
  ): Promise<ReadonlyMap<string, readonly ServicePortKey[]>> {
    const slice = new TimeSlice(urgent(this.#edges.clock));
    const { layout } = this;
    const wanted = new Set([...objects].map(idOf));
    const owners = new Map<string, ServicePortKey[]>();
    for (const key of wanted.size === 0 ? [] : layout.keys) {
      const turn = slice.pause();
      if (turn) await turn;
      const lostPods = layout.lostPodsOf(key);
      const item = { plan: layout.plan(key)!, inputs: layout.inputs, lostPods };
      for (const object of serviceObjects(item)) {
        const id = idOf(object);
        if (!wanted.has(id)) continue;
        const found = owners.getOrInsertComputed(id, () => []);
        if (!found.includes(key)) found.push(key);
      }
    }
    return owners;
  }

  /**
   * Removes drained real servers, according to those seen in the kernel, and returns their number.
   * Those that another program removed, or gave a weight, leave the list.
   */
  async removeDrained(seen: readonly SeenServer[]): Promise<number> {
    if (this.drains.size === 0) return 0;
    const { drainTimeoutMs } = this.#options;
    const now = this.#edges.clock.now();
    const seenReals = new Map(seen.map(({ key, reals }) => [key, reals]));
    const due: (readonly [ServerKey, RealServerKey])[] = [];
    for (const [server, drains] of this.drains) {
      const weightless = (seenReals.get(server) ?? []).filter(({ weight }) => weight === 0);
      const reals = new Map(weightless.map((real) => [real.key, real]));
      for (const [key, since] of drains) {
        const real = reals.get(key);
        if (real === undefined) this.#noteReal(server, key, undefined);
        else if (
          real.active + real.inactive === 0 || (drainTimeoutMs > 0 && now - since >= drainTimeoutMs)
        ) due.push([server, key]);
      }
    }
    if (due.length === 0) return 0;
    const lines = due.map(([server, key]) => deletionLine(realName(server, key)));
    await this.#runner.run({ tool: "ipvsadm", lines });
    for (const [server, key] of due) this.#noteReal(server, key, undefined);
    return due.length;
  }

  /**
   * A foreign virtual server at exactly the address and port of a Service was or will be changed: only one
   * server can exist there. An identical one, which may be a leftover, loses nothing.
   */
  #noteTaken(key: ServerKey, owner: ServicePortKey): void {
    if (this.#taken.has(key) || this.#taken.size === MOST_LOGGED) return;
    this.#taken.add(key);
    const message = "A foreign virtual server had the address of a Service; it was changed";
    this.#edges.logger.warn(message, {
      ...{ server: describeServer(key), servicePort: owner, cure: CURE },
      ...(this.#taken.size === MOST_LOGGED && { more: "further conflicts are not logged" }),
    });
  }

  #count(name: string, by: number): void {
    this.operations[name] = (this.operations[name] ?? 0) + by;
  }

  async #write(changes: IpvsChanges): Promise<void> {
    const { clock } = this.#edges;
    for (const [key, owner] of this.#strangers) {
      const { self, reals } = changes.servers.get(key) ?? { reals: new Map() };
      const isOther = self?.before !== undefined && !hasSameScheduler(self.before, self.after);
      if (isOther || reals.values().some(({ after }) => after === undefined)) {
        this.#noteTaken(key, owner);
      }
    }
    const { family } = this.layout.options;
    const context = { family, drains: this.drains, isTakeover: this.#isTakeover };
    const steps = await inSteps({ clock }, changes.steps(context));
    const wasRead = this.#room === undefined;
    if (changes.of("device").size > 0 || (wasRead && steps.length > 0)) {
      await this.#runner.makeDevice();
    }
    for (const step of steps) {
      if (step.tool === "ipvsadm") {
        // Even a failed write may make a server, or give it other flags.
        for (const [key, { self }] of changes.servers) if (self) this.servers.set(key, "");
      }
      try {
        await this.#runner.run(step);
      } catch (error) {
        if (error instanceof PodFailure) {
          this.layout.losePods(error.reasons, clock.now() + POD_RETRY_MS);
          throw new Refusal(new Map(), error);
        }
        if (step.tool === "iptables") this.failedRestores++;
        const isRefused = error instanceof BatchRefusal ||
          (error instanceof IptablesError && error.kind === "refused");
        if (!isRefused) throw error;
        const owners = step.tool === "ipvsadm"
          ? await this.#ownersOfServers(error, changes)
          : await this.#ownersOfLine(error, step, changes);
        if (owners !== undefined) {
          const reasons = new Map([...owners].map((owner) => [owner, error.message]));
          throw new Refusal(reasons, error, { isPartial: true });
        }
      }
      this.#count("processes", 1);
      this.#count(step.tool, step.lines.length);
    }
    const now = clock.now();
    for (const [name, { after }] of changes.of("address")) {
      if (after === undefined) this.addresses.delete(name as IpAddress);
      else this.addresses.add(name as IpAddress);
    }
    for (const [key, { self, reals }] of changes.servers) {
      if (self !== undefined && self.after === undefined) {
        this.servers.delete(key);
        this.drains.delete(key);
        continue;
      }
      if (self?.after?.includes(" -b ")) this.servers.set(key, self.after);
      else if (!this.servers.has(key)) this.servers.set(key, "");
      for (const [real, { after }] of reals) {
        this.#noteReal(key, real, after === undefined && isDrained(key) ? now : undefined);
      }
    }
  }

  /** A real server drains since a time, or an earlier one that is known; `undefined` = it does not. */
  #noteReal(server: ServerKey, real: RealServerKey, since: number | undefined): void {
    const drains = this.drains.get(server);
    if (since !== undefined) {
      if (drains === undefined) this.drains.set(server, new Map([[real, since]]));
      else if (!drains.has(real)) drains.set(real, since);
    } else if (drains?.delete(real) && drains.size === 0) this.drains.delete(server);
  }

  /**
   * Neither the messages of `ipvsadm -R` nor their order are reliable. Returns the owners of servers
   * that are not as they should be; `undefined` = there are none. They were refused, or come after a
   * line at which the program stopped. In that case there are fewer messages than servers, and the
   * first ones are blamed.
   */
  async #ownersOfServers(
    error: BatchRefusal | IptablesError,
    { servers }: IpvsChanges,
  ): Promise<Iterable<ServicePortKey> | undefined> {
    const made = [...servers].flatMap(([key, { self }]) => self && !self.after ? [] : key);
    const seen = new Map((await this.#runner.servers(made)).map((server) => [server.key, server]));
    const different: ServerChange[] = [];
    for (const [key, change] of servers) {
      const found = seen.get(key);
      if (isAsWritten(change, found)) continue;
      different.push(change);
      const { owner, self, reals } = change;
      if (!owner || !found || self?.before !== undefined) continue;
      // Another program made it a moment ago. The next write reads and changes it.
      const isOther = !hasSameScheduler(found.setup, self?.after);
      if (isOther || found.reals.some(({ key }) => reals.get(key)?.after === undefined)) {
        this.#noteTaken(key, owner);
      }
    }
    if (different.length === 0) return undefined;
    const owners = different.flatMap(({ owner }) => owner ?? []);
    const complaints = "complaints" in error ? error.complaints : 0;
    return new Set(owners.slice(0, Math.max(1, complaints)));
  }

  async #ownersOfLine(
    error: BatchRefusal | IptablesError,
    step: IpvsStep,
    changes: IpvsChanges,
  ): Promise<Iterable<ServicePortKey>> {
    const { lines } = step;
    const line = (error instanceof IptablesError ? error.line?.number : error.line) ?? 0;
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
}

function weightOf({ isMasqueraded, isTunnelled, weight }: SeenRealServer): string {
  if (!isMasqueraded && !isTunnelled) return "another forwarding";
  return `${isTunnelled ? TUNNELLED : ""}weight ${weight}`;
}

function hasSameScheduler(one: string, other: string | undefined): boolean {
  return one.split(" ")[1] === other?.split(" ")[1];
}

/** Whether a server is as it was written, as far as it can be read. */
function isAsWritten({ self, reals }: ServerChange, found: SeenServer | undefined): boolean {
  if (self && self.after === undefined) return found === undefined;
  if (found === undefined) return false;
  if (self?.after !== undefined && !isSameSetup(found.setup, self.after)) return false;
  const texts = new Map(found.reals.map((real) => [real.key, weightOf(real)]));
  return [...reals].every(([real, { after }]) => {
    const text = texts.get(real);
    return after === undefined ? text?.endsWith(WEIGHT_0) !== false : text === after;
  });
}

function idOf({ kind, name }: ObjectName): string {
  return `${kind} ${name}`;
}
