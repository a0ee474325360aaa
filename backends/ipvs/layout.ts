/**
 * The desired state: the ServicePorts that are served, and the plans by which they are. Pure except
 * for its own state. The objects in the kernel are rendered from the plans on demand.
 *
 * @module
 */
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import { deepEqual } from "../../lib/proxy/deep_equal.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import {
  type ServiceKey,
  serviceKey,
  type ServicePortKey,
} from "../../lib/proxy/service_port_name.ts";
import type { BaseRuleContext } from "./base_rules.ts";
import { endpointsOf, type IpvsRenderOptions, type RenderInputs } from "./render_service.ts";
import { dsrOf, podsOf, type ReplyDevice } from "./dsr.ts";
import { schedulingOf } from "./scheduler.ts";

/** Lost pods of a ServicePort that are reported: a slice may have a thousand that do not exist. */
const MOST_NAMED = 3;
/**
 * Maximum number of real servers of one Service. Each frontend repeats every endpoint, so one Service
 * and one slice within their limits could need 100 million. 5,000 endpoints at 40 addresses fit.
 */
const MOST_REAL_SERVERS = 200_000;
const TOO_MANY_REAL_SERVERS =
  `The Service would have more than ${MOST_REAL_SERVERS} real servers, counted as frontends times ` +
  "endpoints. Use fewer addresses, ports or endpoints, or another mode";
/**
 * The kinds of masquerade, widest first. The fixed rules use one kind, and all ServicePorts of a plan
 * have the same.
 */
const MASQUERADE_KINDS = ["all", "off-cluster", "none"] as const;

/** The desired state, and which ServicePorts may differ from the applied ones. */
export class IpvsLayout implements RenderInputs {
  readonly options: IpvsRenderOptions;
  readonly shared: RenderInputs["shared"];
  /** The same without the ServicePorts. */
  readonly inputs: RenderInputs;
  readonly #plans = new Map<ServicePortKey, ServicePlan>();
  /** What was asked for in place of a plan that is served without its scheduler. */
  readonly #asked = new Map<ServicePortKey, ServicePlan>();
  readonly #dirty = new Set<ServicePortKey>();
  readonly #problems = new Map<ServicePortKey, readonly Quarantined[]>();
  readonly #masquerade = new Map<ServicePlan["masqueradeInternal"], number>();
  readonly #realServers = new Map<ServiceKey, number>();
  /** Those with direct server return, and their pods on this node. */
  readonly #dsr = new Map<ServicePortKey, readonly IpAddress[]>();
  #lostPods: ReadonlyMap<IpAddress, string> = new Map();
  /** Those that were found but could not be set up, and when they are tried again. */
  readonly #failedPods = new Map<
    IpAddress,
    { readonly reason: string; readonly retryAt: number }
  >();
  #lostPodNames: ReadonlySet<IpAddress> = new Set();
  #replyDevices: readonly ReplyDevice[] = [];

  constructor(shared: RenderInputs["shared"], options: IpvsRenderOptions) {
    this.shared = {
      localTraffic: shared.localTraffic,
      nodePortAddresses: shared.nodePortAddresses,
    };
    this.options = options;
    this.inputs = { shared: this.shared, options };
  }

  /** ServicePorts that may differ from the applied ones, including those no longer served. */
  get dirty(): ReadonlySet<ServicePortKey> {
    return this.#dirty;
  }

  /** Every ServicePort that is served. */
  get keys(): Iterable<ServicePortKey> {
    return this.#plans.keys();
  }

  /** The inputs of the fixed rules. */
  get ruleContext(): BaseRuleContext {
    const kind = MASQUERADE_KINDS.find((each) => (this.#masquerade.get(each) ?? 0) > 0);
    return {
      options: this.options,
      localTraffic: this.shared.localTraffic,
      masqueradeInternal: kind ?? "none",
      hasDsr: this.#dsr.size > 0,
      replyDevices: this.#replyDevices,
    };
  }

  /** Unusable settings, ServicePorts that the kernel refused, and pods that can't be set up. */
  get quarantined(): readonly Quarantined[] {
    const pods = [...this.#lostPods.size === 0 ? [] : this.#dsr.keys()].flatMap((key) => {
      const lost = this.#needed(key).filter((pod) => this.#lostPods.has(pod));
      return lost.slice(0, MOST_NAMED).map((address, index) => {
        const others = index === MOST_NAMED - 1 && lost.length > MOST_NAMED;
        const why = `${this.#lostPods.get(address)}${others ? "; other pods get none either" : ""}`;
        return { key, address, reason: `The pod gets no packets by direct server return: ${why}` };
      });
    });
    return [...[...this.#problems.values()].flat(), ...pods];
  }

  /** The pods of this node that have to have addresses of Services, for direct server return. */
  get pods(): ReadonlySet<IpAddress> {
    return new Set([...this.#dsr.values()].flat());
  }

  /** Those of {@linkcode pods} that are not about to end. */
  get neededPods(): ReadonlySet<IpAddress> {
    return new Set([...this.#dsr.keys()].flatMap((key) => this.#needed(key)));
  }

  /** The pods without which a ServicePort is served; `undefined` = none. */
  lostPodsOf(key: ServicePortKey): ReadonlySet<IpAddress> | undefined {
    return this.#lostPodNames.size > 0 && this.#dsr.has(key) ? this.#lostPodNames : undefined;
  }

  /** Notes which pods can't be set up and why, and the devices of the others. */
  setPods(found: ReadonlyMap<IpAddress, string>, devices: readonly ReplyDevice[]): void {
    const failed = [...this.#failedPods].map(([pod, { reason }]) => [pod, reason] as const);
    const lost = new Map([...failed, ...found]);
    const changed = new Set(lost.keys()).symmetricDifference(this.#lostPodNames);
    for (const [key, pods] of changed.size === 0 ? [] : this.#dsr) {
      if (pods.some((pod) => changed.has(pod))) this.#dirty.add(key);
    }
    this.#lostPods = lost;
    if (changed.size > 0) this.#lostPodNames = new Set(lost.keys());
    if (!deepEqual(devices, this.#replyDevices)) this.#replyDevices = devices;
  }

  /** Leaves out further pods for a time, or until a ServicePort of theirs changes: no other change tries them. */
  losePods(lost: ReadonlyMap<IpAddress, string>, retryAt: number): void {
    for (const [pod, reason] of lost) this.#failedPods.set(pod, { reason, retryAt });
    this.setPods(this.#lostPods, this.#replyDevices);
  }

  /** Tries pods again whose time has come. */
  retryPods(now: number): void {
    for (const [pod, { retryAt }] of this.#failedPods) {
      if (retryAt <= now) this.#failedPods.delete(pod);
    }
  }

  /** The plan by which a ServicePort is served; `undefined` = it is not. */
  plan(key: ServicePortKey): ServicePlan | undefined {
    return this.#plans.get(key);
  }

  /** The same as it was asked for. */
  askedPlan(key: ServicePortKey): ServicePlan | undefined {
    return this.#asked.get(key) ?? this.#plans.get(key);
  }

  /** Whether it serves with these as well. */
  fits({ localTraffic, nodePortAddresses }: SharedPlan, options: IpvsRenderOptions): boolean {
    const { nodeAddresses: known, ...rest } = this.options;
    const { nodeAddresses, ...others } = options;
    return deepEqual(this.shared, { localTraffic, nodePortAddresses }) && deepEqual(rest, others) &&
      known.symmetricDifference(nodeAddresses).size === 0;
  }

  /** Returns why a ServicePort cannot be served next to the other ones of its Service. */
  obstacle(plan: ServicePlan): string | undefined {
    const previous = this.#plans.get(plan.key);
    const others = (this.#realServers.get(serviceKey(plan.name)) ?? 0) -
      (previous ? this.#realServersOf(previous) : 0);
    const count = others + this.#realServersOf(plan);
    return count <= MOST_REAL_SERVERS ? undefined : TOO_MANY_REAL_SERVERS;
  }

  /** Serves a ServicePort by a plan, and takes it out of quarantine. */
  set(plan: ServicePlan): void {
    if (this.#plans.get(plan.key) !== plan) this.#set(plan);
  }

  /** Stops serving a ServicePort. */
  delete(key: ServicePortKey): void {
    this.#asked.delete(key);
    this.#problems.delete(key);
    for (const pod of this.#dsr.get(key) ?? []) this.#failedPods.delete(pod);
    this.#dsr.delete(key);
    const plan = this.#plans.get(key);
    if (plan === undefined) return;
    this.#plans.delete(key);
    this.#count(plan, -1);
  }

  /**
   * Leaves a ServicePort out that the kernel refused, until it is set again; unless only its
   * scheduler is missing: then the node's own is used.
   */
  quarantine(item: Quarantined, plan: ServicePlan): void {
    const asked = this.#asked.get(item.key) ?? plan;
    this.delete(item.key);
    const { annotations, ...plain } = plan;
    if (annotations !== undefined && item.reason.includes("Scheduler")) {
      this.#set(plain);
      this.#asked.set(item.key, asked);
    }
    this.#problems.set(item.key, [item]);
  }

  /** Marks ServicePorts for comparison: they were applied with other settings. */
  touch(keys: Iterable<ServicePortKey>): void {
    for (const key of keys) this.#dirty.add(key);
  }

  /** Records that the desired state was applied. */
  settle(): void {
    this.#dirty.clear();
  }

  #set(plan: ServicePlan): void {
    const { key } = plan;
    this.delete(key);
    const dsr = dsrOf(plan, this.options);
    const problems = [
      ...schedulingOf(plan.annotations, this.options.scheduler).problems,
      ...dsr.problems,
    ];
    this.#plans.set(key, plan);
    if (dsr.isOn) this.#dsr.set(key, podsOf(plan));
    this.#count(plan, 1);
    if (problems.length > 0) this.#problems.set(key, problems.map((reason) => ({ key, reason })));
  }

  #needed(key: ServicePortKey): readonly IpAddress[] {
    return (this.#plans.get(key)?.endpoints ?? []).flatMap(({ address, isLocal, terminating }) =>
      isLocal && !terminating ? address : []
    );
  }

  #count(plan: ServicePlan, change: 1 | -1): void {
    const { key, masqueradeInternal } = plan;
    this.#dirty.add(key);
    const count = this.#masquerade.get(masqueradeInternal) ?? 0;
    this.#masquerade.set(masqueradeInternal, count + change);
    const service = serviceKey(plan.name);
    const sum = (this.#realServers.get(service) ?? 0) + change * this.#realServersOf(plan);
    if (sum > 0) this.#realServers.set(service, sum);
    else this.#realServers.delete(service);
  }

  #realServersOf({ internal, external, ...plan }: ServicePlan): number {
    const { externalIps, loadBalancerVips, nodePort } = plan;
    const outside = externalIps.length + loadBalancerVips.length +
      (nodePort === undefined ? 0 : this.shared.nodePortAddresses.length);
    return endpointsOf(internal).length + outside * endpointsOf(external).length;
  }
}
