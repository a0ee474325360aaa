/**
 * The ipvs mode: virtual servers of the kernel, with sets and rules around them.
 *
 * `layout.ts` says what is wanted, `target.ts` what the engine needs to know to compare and write it.
 * The objects remain when the process ends. The next start adopts them, and also those of kube-proxy.
 *
 * @module
 */
import { type Cidr, tryParseCidr } from "../../lib/net/cidr.ts";
import {
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
  isLoopback,
  tryParseIpAddress,
} from "../../lib/net/ip_address.ts";
import type { Network } from "../../lib/os/network.ts";
import type { Backend, RuleCounters } from "../../lib/proxy/backend.ts";
import type { CleanupReport } from "../../lib/engine/data_plane.ts";
import {
  type BackendInspection,
  featuresFound,
  type MachineFacts,
  type ProbeResult,
  type ServedAddress,
  type ServerRates,
  type ServiceInspection,
} from "../../lib/proxy/service_mode.ts";
import type { HostSettingRequest } from "../../lib/proxy/data_plane.ts";
import type { PlanChanges, ProxyPlan, SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { isAtLeast, parseVersion } from "../netfilter/probe/tool_version.ts";
import { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import { chooseIptables } from "../netfilter/iptables/iptables_variant.ts";
import { IpvsRunner } from "./ipvs_runner.ts";
import { explainIpvs } from "./explain.ts";
import {
  RuleBackend,
  type RuleBackendOptions,
  type RuleComparison,
} from "../netfilter/rule_backend.ts";
import type {
  DriftFigures,
  FoundMachine,
  RulePlaneEdges,
  RuleWatch,
} from "../netfilter/rule_plane.ts";
import { DEFAULT_SCHEDULER, type Scheduler, SCHEDULERS, tryParseScheduler } from "./scheduler.ts";
import { removeOwnObjects, removeStaleChains } from "./own_objects.ts";
import { probeIpvsMode } from "./probe.ts";
import {
  defaultIpvsOptions,
  type IpvsFeatures,
  type IpvsRenderOptions,
  renderService,
} from "./render_service.ts";
import { ipvsDifferences } from "./objects.ts";
import { IpvsLayout } from "./layout.ts";
import { IpvsTarget } from "./target.ts";
import { IPVS_DEVICE } from "../iproute/dummy_devices.ts";
import { renderText } from "./render.ts";
import type { SeenServer, ServerKey } from "../netfilter/virtual_servers.ts";
import { addressLine } from "../iproute/ip_runner.ts";
import { type SetId, setName } from "./ipset_table.ts";
import { contestedAddressesOf } from "../../lib/proxy/frontend.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { TimeSlice } from "../../lib/os/time_slice.ts";

/** The edges of the ipvs backend. */
interface IpvsBackendDependencies extends RulePlaneEdges {
  readonly network: Network;
}

/** The fields of the configuration that are read. Times are milliseconds. */
export interface IpvsConfigurationFields {
  readonly scheduler: string;
  readonly excludeCIDRs: readonly string[];
  readonly strictARP: boolean;
  /** 0 keeps the kernel's value, as of the two below. */
  readonly tcpTimeout: number;
  readonly tcpFinTimeout: number;
  readonly udpTimeout: number;
  /** The interval of checks of the kernel. */
  readonly syncPeriod: number;
}

/** Settings of the ipvs backend. */
export interface IpvsBackendOptions extends Omit<RuleBackendOptions, "syncPeriodMs"> {
  readonly ipvs: IpvsConfigurationFields;
  /** Maximum time for the connections of a removed endpoint to end, ms; 0 = unlimited. */
  readonly drainTimeoutMs: number;
}

/** The first version of iptables with `--random-fully`. */
const RANDOM_FULLY = [1, 6, 2];

/** While connections are waited for. */
const DRAIN_LOOK_MS = 5_000;
const LONGEST_PAUSE_MS = 30_000;
const SHORTEST_PAUSE_MS = 1_000;

/** What the metrics count objects as; entries of sets have the name of their set as kind. */
const KINDS: Readonly<Record<string, DriftFigures["kind"]>> = {
  ...{ chain: "rule", jump: "rule", rule: "rule" },
  ...{ server: "virtual_server", real: "virtual_server" },
  ...{ device: "address", address: "address", pod: "address" },
};

/** An ipvs backend for one IP family. Runs nothing before it is started. */
export class IpvsBackend extends RuleBackend<IpvsLayout, IpvsRenderOptions, IpvsTarget>
  implements Backend {
  readonly mode = "ipvs";
  readonly #dependencies: IpvsBackendDependencies;
  readonly #options: IpvsBackendOptions;
  readonly #scheduler: Scheduler;
  readonly #excludeCidrs: readonly Cidr[];
  /** Absent before `start()`. */
  #runner: IpvsRunner | undefined;
  #features: IpvsFeatures;
  #hasCleared = false;

  constructor(dependencies: IpvsBackendDependencies, options: IpvsBackendOptions) {
    super(dependencies, options);
    this.#dependencies = dependencies;
    this.#options = options;
    const { family, facts = { features: {} }, ipvs } = options;
    this.#scheduler = tryParseScheduler(ipvs.scheduler) ?? DEFAULT_SCHEDULER;
    // The configuration was validated before.
    this.#excludeCidrs = ipvs.excludeCIDRs.flatMap((cidr) => tryParseCidr(cidr) ?? []);
    this.#features = featuresFound(defaultIpvsOptions(family).features, facts);
  }

  hostSettings(): readonly HostSettingRequest[] {
    const { family, ipvs } = this.#options;
    const interfaces = this.#dependencies.network.interfaceAddresses()
      .filter(({ interfaceName, address }) =>
        interfaceName !== IPVS_DEVICE && ipFamilyOf(address) === "IPv4" && !isLoopback(address)
      ).map(({ interfaceName }) => interfaceName);
    return ipvsHostSettings(family, Deno.osRelease(), ipvs.strictARP ? interfaces : []);
  }

  probe(): Promise<readonly ProbeResult[]> {
    return probeIpvsMode(this.#dependencies, { scheduler: this.#scheduler });
  }

  protected async prepare(): Promise<FoundMachine<IpvsTarget>> {
    const { clock, logger } = this.#dependencies;
    const { drainTimeoutMs, ipvs } = this.#options;
    if (tryParseScheduler(ipvs.scheduler) === undefined) {
      throw new Error(
        `Cannot start mode ipvs: there is no scheduler '${ipvs.scheduler}', ` +
          `only ${SCHEDULERS.join(", ")}`,
      );
    }
    const { iptables, programs, reason, runner } = await this.#tools("start mode ipvs for");
    const { variant, version } = programs;
    logger.info("Chose the variant of iptables", { variant, version, reason });
    const found = await runner.deviceAddresses();
    await runner.setTimeouts(ipvs.tcpTimeout, ipvs.tcpFinTimeout, ipvs.udpTimeout)
      .catch((error) => logger.warn("Cannot set time-outs of IPVS", { error }));
    const target = new IpvsTarget({ clock, logger }, runner, {
      excludeCidrs: this.#excludeCidrs,
      drainTimeoutMs,
    });
    const watch = this.#watchOf(runner, iptables, target);
    const parsed = parseVersion(version);
    this.#features = { randomFully: parsed === undefined || isAtLeast(parsed, RANDOM_FULLY) };
    this.#runner = runner;
    // The chains of iptables mode are this mode's too.
    const isFresh = found === undefined && !await hasServiceRules(iptables);
    return { target, watch, isFresh };
  }

  protected get summary(): string {
    const { target } = this;
    if (target === undefined) return "not started";
    const summary = `virtual servers on ${IPVS_DEVICE}, scheduler ${this.#scheduler}`;
    return [summary, target.taken ?? []].flat().join("; ");
  }

  protected optionsOf({ shared }: ProxyPlan): IpvsRenderOptions {
    const { family, masqueradeBit } = this.#options;
    const { interfaceAddresses, serviceCidrs } = shared;
    const nodeAddresses = new Set(interfaceAddresses);
    const [features, scheduler] = [this.#features, this.#scheduler];
    return { family, features, masqueradeBit, scheduler, nodeAddresses, serviceCidrs };
  }

  protected createLayout(shared: SharedPlan, options: IpvsRenderOptions): IpvsLayout {
    return new IpvsLayout(shared, options);
  }

  explain: Backend["explain"] = (plan, explanation, hit) =>
    explainIpvs(plan, explanation, hit, this.optionsOf(plan));

  render(plan: ProxyPlan, keys?: ReadonlySet<ServicePortKey>): Iterable<string> {
    return renderText(plan, this.optionsOf(plan), keys);
  }

  facts(): MachineFacts | undefined {
    return this.target && { features: { ...this.#features } };
  }

  override async inspect(keys?: readonly ServicePortKey[]): Promise<BackendInspection> {
    const { clock, logger } = this.#dependencies;
    const { layout, summary } = this;
    const runner = this.#runner;
    if (runner === undefined || layout === undefined) {
      return { summary, services: [], quarantined: [] };
    }
    const quarantined = layout.quarantined.filter(({ key }) => keys?.includes(key) ?? true);
    if (keys?.length === 0) return { summary, services: [], quarantined };
    const servers = await runner.servers();
    const seen = new Map(servers.map((server) => [server.key, server]));
    // If no connection is remembered, there was none for at least a minute.
    const isBusy = servers.some(({ reals }) =>
      reals.some(({ active, inactive }) => active + inactive > 0)
    );
    let rates: ReadonlyMap<ServerKey, ServerRates> = new Map();
    try {
      if (isBusy) rates = await runner.rates();
    } catch (error) {
      // A status without rates is better than none.
      logger.verbose(2, "Cannot read rates of virtual servers", { error });
    }
    const slice = new TimeSlice(clock);
    const services: ServiceInspection[] = [];
    for (const key of keys ?? layout.keys) {
      const plan = layout.plan(key);
      if (plan) services.push(inspectService(plan, layout, seen, rates));
      await slice.pause();
    }
    return { summary, services, quarantined };
  }

  /** Counts writes of iptables only: kube-proxy has no metrics for sets and virtual servers. */
  override ruleCounters(): Promise<RuleCounters> {
    const failedWrites = this.target?.failedRestores ?? 0;
    return Promise.resolve({ failedWrites, failedPartialWrites: 0, failedCleanups: 0 });
  }

  /**
   * Removes external IPs and load balancer addresses of an earlier run from the device. Their virtual
   * servers stay until the first sync. Leaves cluster IPs: they serve also while no API server can be
   * reached.
   */
  disown(isForeign: (address: IpAddress) => boolean): Promise<readonly IpAddress[]> {
    return this.turns.run(async () => {
      const runner = this.#runner;
      if (runner === undefined) return [];
      const { device = new Set<IpAddress>(), sets } = await runner.read();
      const addressesIn = (...ids: readonly SetId[]) =>
        new Set(
          ids.flatMap((id) => [...sets.get(setName(id, this.family))?.entries ?? []])
            .flatMap((entry) => tryParseIpAddress(entry.slice(0, entry.indexOf(","))) ?? []),
        );
      const external = addressesIn(
        ...["EXTERNAL-IP", "EXTERNAL-IP-LOCAL", "LOAD-BALANCER", "LOAD-BALANCER-LOCAL"] as const,
      );
      const foreign = [...external.difference(addressesIn("CLUSTER-IP"))]
        .filter((address) => device.has(address) && isForeign(address));
      if (foreign.length === 0) return [];
      const lines = foreign.map((address) => addressLine("del", { address, device: IPVS_DEVICE }));
      await runner.run({ tool: "ip", lines });
      return foreign;
    });
  }

  override ownsAddress(_address: IpAddress, interfaceName: string): boolean {
    return interfaceName === IPVS_DEVICE;
  }

  protected remove({ dryRun }: { readonly dryRun: boolean }): Promise<CleanupReport> {
    return removeOwnObjects(this.#dependencies, this.family, this.#excludeCidrs, dryRun);
  }

  /** Removes chains of other modes, once. They may be in use until a sync has written all rules. */
  protected override async synced(_plan: ProxyPlan, { isPartial }: PlanChanges): Promise<void> {
    if (isPartial || this.#hasCleared) return;
    this.#hasCleared = true;
    const { logger } = this.#dependencies;
    const { removed, failed } = await removeStaleChains(this.#dependencies, this.family);
    if (removed.length > 0) logger.info("Removed unused chains", { removed });
    if (failed.length > 0) logger.warn("Cannot remove unused chains", { failed });
  }

  /** Each time the tools are chosen again. */
  protected async comparison(
    plan: ProxyPlan,
    fill: (layout: IpvsLayout) => Promise<void>,
  ): Promise<RuleComparison> {
    const { clock, logger, network } = this.#dependencies;
    const { drainTimeoutMs, facts } = this.#options;
    const { runner } = await this.#tools("compare rules of");
    const own = { drainTimeoutMs, excludeCidrs: this.#excludeCidrs, isForeign: true };
    const target = new IpvsTarget({ clock, logger }, runner, own);
    const nodeAddresses = () =>
      network.interfaceAddresses().filter(({ interfaceName, address }) =>
        interfaceName !== IPVS_DEVICE && ipFamilyOf(address) === this.family
      ).map(({ address }) => address);
    const layout = target.layout = new IpvsLayout(plan.shared, {
      ...this.optionsOf(plan),
      ...(facts === undefined && { nodeAddresses: new Set(nodeAddresses()) }),
    });
    await fill(layout);
    return {
      target,
      differencesIn: (changes) =>
        ipvsDifferences(changes, this.family, (objects) => target.ownersOf(objects)),
    };
  }

  /** The watch of servers and addresses. Sets and single rules are only seen by reading everything. */
  #watchOf(runner: IpvsRunner, iptables: IptablesRunner, target: IpvsTarget): RuleWatch {
    const { logger } = this.#dependencies;
    const periodMs = this.#options.ipvs.syncPeriod;
    /** Describes what is missing; `undefined` = nothing. */
    const lost = async (seen: readonly SeenServer[]) => {
      const there = new Set(seen.map(({ key }) => key));
      for (const key of target.servers.keys()) if (!there.has(key)) return `virtual server ${key}`;
      const pod = await runner.pods.lostPod(target.layout.neededPods);
      if (pod !== undefined) return `the network namespace of pod ${pod}`;
      const addresses = await runner.deviceAddresses();
      if (addresses === undefined) return "the device";
      // The other IP family may have made it again, without the addresses of this one.
      for (const address of target.addresses) {
        if (!addresses.has(address)) return `address ${address}`;
      }
      return await iptables.hasRules("nat", "KUBE-SERVICES") ? undefined : "rules of table nat";
    };
    const look = async () => {
      const seen = await runner.servers(target.servers.keys());
      try {
        const drained = await target.removeDrained(seen);
        if (drained > 0) logger.verbose(2, "Removed drained real servers", { drained });
      } catch (error) {
        this.engine?.forget();
        throw error;
      }
      const what = await lost(seen);
      return what === undefined ? undefined : { lost: what };
    };
    return {
      texts: {
        lost: "Another program removed objects of kube-relay; repairing",
        changed: "Another program removed or changed objects of kube-relay; repairing",
        failed: "Cannot check the virtual servers; trying again",
      },
      get pauseMs() {
        const longest = target.drains.size > 0 ? DRAIN_LOOK_MS : LONGEST_PAUSE_MS;
        return Math.max(Math.min(periodMs, longest), SHORTEST_PAUSE_MS);
      },
      look,
      found(changes) {
        const counts: Partial<Record<DriftFigures["kind"], number>> = {};
        for (const { kind } of changes) {
          const counted = KINDS[kind] ?? "set";
          counts[counted] = (counts[counted] ?? 0) + 1;
        }
        const { reads: _, processes: __, ...fields } = target.operations;
        return { counts, fields };
      },
    };
  }

  /** `use`: what cannot be done without them. */
  async #tools(use: string) {
    const { clock, commands } = this.#dependencies;
    const { family } = this;
    const choice = await chooseIptables({ commands }, { family });
    if (choice.programs === undefined) {
      throw new Error(`Cannot ${use} ${family}: ${choice.problem}`);
    }
    const { programs, reason } = choice;
    const iptables = new IptablesRunner({ commands }, programs);
    return {
      iptables,
      programs,
      reason,
      runner: new IpvsRunner(clock, commands, iptables, family),
    };
  }
}

/**
 * The settings of the kernel: those of IPVS are the same for both families. `arpInterfaces` answer ARP
 * only for their own addresses. `kernelRelease` as `uname -r` prints it.
 */
export function ipvsHostSettings(
  family: IpFamily,
  kernelRelease: string,
  arpInterfaces: readonly string[],
): readonly HostSettingRequest[] {
  const version = parseVersion(kernelRelease);
  // The kernels in between answer a reused port of a client by a second of silence.
  const waitsForReuse = version !== undefined && isAtLeast(version, [4, 1]) &&
    !isAtLeast(version, [5, 9]);
  const rows: (readonly [name: string, value: string, purpose: string, atLeast?: true])[] = [
    ["vs.conntrack", "1", "masquerade packets that IPVS forwards"],
    ["vs.expire_nodest_conn", "1", "send clients of a removed endpoint to another one at once"],
    ["vs.expire_quiescent_template", "1", "let session affinity end with its endpoint"],
  ];
  if (waitsForReuse) {
    const purpose = "answer clients that use a port again at once (kernels before 5.9)";
    rows.splice(1, 0, ["vs.conn_reuse_mode", "0", purpose]);
  }
  // Not so for IPv6, where it would end the reception of router advertisements.
  if (family === "IPv4") rows.push(["ip_forward", "1", "forward packets to pods"]);
  // The kernel cannot limit ARP to single addresses, and uses the larger value of the interface and of
  // `all`. Setting `all` breaks interfaces without an address, as some pod networks have, and new network
  // namespaces inherit it (kubernetes/kubernetes#71555).
  for (const each of family === "IPv4" ? [...new Set(arpInterfaces)].sort() : []) {
    // `sysctl` takes a dot in the name of an interface for a slash, and a slash for a dot.
    const name = `conf.${each.replaceAll(".", "/")}`;
    const purpose = "answer ARP only for addresses of the interface that is asked (strictARP)";
    rows.push([`${name}.arp_ignore`, "1", purpose, true]);
    rows.push([
      `${name}.arp_announce`,
      "2",
      "announce no Service address by ARP (strictARP)",
      true,
    ]);
  }
  return rows.map(([name, value, purpose, atLeast]) => ({
    ...{ name: `net.ipv4.${name}`, value, purpose },
    ...(atLeast && { atLeast }),
  }));
}

/**
 * Whether the chain shared by iptables mode and kube-proxy exists. Unreadable tables count as yes.
 */
async function hasServiceRules(iptables: IptablesRunner): Promise<boolean> {
  try {
    return await iptables.rulesOf("nat", "KUBE-SERVICES") !== undefined;
  } catch {
    return true;
  }
}

/** The virtual servers of a ServicePort, and the connections that are remembered for them. */
function inspectService(
  plan: ServicePlan,
  layout: IpvsLayout,
  seen: ReadonlyMap<ServerKey, SeenServer>,
  ratesOf: ReadonlyMap<ServerKey, ServerRates>,
): ServiceInspection {
  const addresses: ServedAddress[] = [];
  let connections = 0;
  for (const { address, port, protocol, role, server } of renderService(plan, layout).frontends) {
    const found = seen.get(server);
    let [active, inactive] = [0, 0];
    for (const real of found?.reals ?? []) {
      active += real.active;
      inactive += real.inactive;
    }
    connections += active + inactive;
    const state = found?.reals.some(({ weight }) => weight > 0) ? "serving" : "refusing";
    const rates = ratesOf.get(server);
    const load = found && { active, inactive, ...(rates && { rates }) };
    addresses.push({ role, address, port, protocol, state, ...(load && { load }) });
  }
  for (const place of contestedAddressesOf(plan, layout.shared.nodePortAddresses)) {
    addresses.push({ ...place, protocol: plan.protocol, state: "quarantined" });
  }
  return { key: plan.key, addresses, connections };
}
