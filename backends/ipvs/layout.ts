/**
 * The desired state: virtual servers, entries of sets, addresses of the device, and rules. Pure
 * except for its own state.
 *
 * For a virtual server, the layout stores only the ServicePorts that need it. It renders the rest from
 * their plans on demand.
 *
 * @module
 */
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { Endpoint } from "../../lib/proxy/endpoint.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { ServicePortIndex } from "../../lib/proxy/service_port_index.ts";
import {
  type ServiceKey,
  serviceKey,
  type ServicePortKey,
} from "../../lib/proxy/service_port_name.ts";
import type { BaseRuleContext } from "./base_rules.ts";
import { SET_IDS, type SetId } from "./ipset_table.ts";
import { WantedItems } from "./wanted_items.ts";
import type { IpvsRenderOptions } from "./render_options.ts";
import { endpointsOf, type RenderInputs, renderService } from "./render_service.ts";
import type { ServiceFrontend, ServiceParts, SetEntry } from "./service_frontend.ts";
import type { ServerKey, VirtualServer } from "./virtual_server.ts";

/** A desired virtual server. */
export interface WantedServer {
  readonly server: VirtualServer;
  readonly endpoints: readonly Endpoint[];
  /** The ServicePort it belongs to. */
  readonly owner: ServicePortKey;
}

/** Up to this number, frontends are rendered and searched; beyond, they are indexed. */
const FEW_FRONTENDS = 8;
/**
 * Maximum number of real servers of one Service. Each frontend repeats every endpoint, so one Service
 * and one slice within their limits could need 100 million. 5,000 endpoints at 40 addresses fit.
 */
const MOST_REAL_SERVERS = 200_000;
/** The reason why a ServicePort is left out that {@linkcode IpvsLayout.hasRoomFor} refuses. */
export const TOO_MANY_REAL_SERVERS =
  `The Service would have more than ${MOST_REAL_SERVERS} real servers, counted as frontends times ` +
  "endpoints. Use fewer addresses, ports or endpoints, or another mode";
/**
 * The kinds of masquerade, widest first. The fixed rules use one kind, and all ServicePorts of a plan
 * have the same.
 */
const MASQUERADE_KINDS = ["all", "off-cluster", "none"] as const;

/** The desired state, and which virtual servers may differ from the applied ones. */
export class IpvsLayout implements RenderInputs {
  readonly options: IpvsRenderOptions;
  readonly shared: RenderInputs["shared"];
  readonly sets: Readonly<Record<SetId, WantedItems<string>>>;
  /** Addresses of the device. */
  readonly addresses = new WantedItems<IpAddress>();
  /** Rules of chain `KUBE-FROM-CLUSTER`. */
  readonly rules = new WantedItems<string>();
  readonly #plans = new Map<ServicePortKey, ServicePlan>();
  /** Several ServicePorts share a virtual server only while plans are exchanged one by one. */
  readonly #claims = new ServicePortIndex<ServerKey>();
  /** An index of the frontends of large plans, until the desired state is applied. */
  readonly #frontends = new Map<ServicePlan, ReadonlyMap<ServerKey, ServiceFrontend>>();
  readonly #dirty = new Set<ServerKey>();
  readonly #problems = new Map<ServicePortKey, readonly Quarantined[]>();
  readonly #masquerade = new Map<ServicePlan["masqueradeInternal"], number>();
  readonly #realServers = new Map<ServiceKey, number>();

  constructor(shared: RenderInputs["shared"], options: IpvsRenderOptions) {
    this.shared = shared;
    this.options = options;
    const sets: Partial<Record<SetId, WantedItems<string>>> = {};
    for (const id of SET_IDS) sets[id] = new WantedItems();
    this.sets = sets as Record<SetId, WantedItems<string>>;
  }

  /** Virtual servers that may differ from the applied ones, including those no longer wanted. */
  get dirty(): ReadonlySet<ServerKey> {
    return this.#dirty;
  }

  /** Every ServicePort that is served. */
  get keys(): Iterable<ServicePortKey> {
    return this.#plans.keys();
  }

  /** Every virtual server that is wanted. */
  get servers(): Iterable<ServerKey> {
    return this.#claims.items;
  }

  /** The inputs of the fixed rules. */
  get ruleContext(): BaseRuleContext {
    const kind = MASQUERADE_KINDS.find((each) => (this.#masquerade.get(each) ?? 0) > 0);
    return {
      options: this.options,
      localTraffic: this.shared.localTraffic,
      masqueradeInternal: kind ?? "none",
    };
  }

  /** Unusable settings, and ServicePorts that the kernel refused. */
  get quarantined(): readonly Quarantined[] {
    return [...this.#problems.values()].flat();
  }

  /** The plan by which a ServicePort is served; `undefined` = it is not. */
  plan(key: ServicePortKey): ServicePlan | undefined {
    return this.#plans.get(key);
  }

  /** The virtual server of a key; `undefined` = it is not wanted. */
  server(key: ServerKey): WantedServer | undefined {
    const holder = this.#holderOf(key);
    if (holder === undefined) return undefined;
    const { server, endpoints } = this.#frontend(holder, key);
    return { server, endpoints, owner: holder.key };
  }

  /** Whether the Service of a plan may have the real servers of the plan, next to its other ones. */
  hasRoomFor(plan: ServicePlan): boolean {
    const previous = this.#plans.get(plan.key);
    const others = (this.#realServers.get(serviceKey(plan.name)) ?? 0) -
      (previous ? this.#realServersOf(previous) : 0);
    return others + this.#realServersOf(plan) <= MOST_REAL_SERVERS;
  }

  /** Serves a ServicePort by a plan, and takes it out of quarantine. */
  set(plan: ServicePlan): void {
    const previous = this.#plans.get(plan.key);
    if (previous === plan) return;
    this.delete(plan.key);
    const parts = this.#render(plan);
    this.#plans.set(plan.key, plan);
    this.#count(plan, 1);
    for (const frontend of parts.frontends) this.#claim(plan, frontend);
    for (const [set, entry] of parts.entries) this.sets[set].claim(entry);
    if (parts.quarantined.length > 0) this.#problems.set(plan.key, parts.quarantined);
  }

  /** Stops serving a ServicePort. */
  delete(key: ServicePortKey): void {
    const plan = this.#plans.get(key);
    this.#problems.delete(key);
    if (plan) this.#take(plan);
  }

  /**
   * Quarantines a ServicePort that the kernel refused, until it is set again.
   */
  quarantine(item: Quarantined, instead?: ServicePlan): void {
    this.delete(item.key);
    if (instead) this.set(instead);
    this.#problems.set(item.key, [item]);
  }

  /** Marks servers for comparison because their applied state is no longer known. */
  touch(servers: Iterable<ServerKey>): void {
    for (const key of servers) this.#dirty.add(key);
  }

  /** Adopts the applied state of a layout with other settings. */
  inherit(other: IpvsLayout): void {
    for (const id of SET_IDS) this.sets[id].adopt(other.sets[id].applied());
    this.addresses.adopt(other.addresses.applied());
    this.rules.adopt(other.rules.applied());
    this.touch(other.dirty);
    this.touch(other.servers);
    this.touch(this.servers);
  }

  /** Records that the desired state was applied. */
  settle(): void {
    for (const id of SET_IDS) this.sets[id].settle();
    this.addresses.settle();
    this.rules.settle();
    this.#dirty.clear();
    this.#frontends.clear();
  }

  #take(plan: ServicePlan): void {
    const parts = this.#render(plan);
    for (const frontend of parts.frontends) this.#unclaim(plan, frontend);
    for (const [set, entry] of parts.entries) this.sets[set].release(entry);
    this.#plans.delete(plan.key);
    this.#count(plan, -1);
  }

  #claim({ key }: ServicePlan, frontend: ServiceFrontend): void {
    const { server } = frontend;
    this.#claims.add(server.key, key);
    if (this.#claims.first(server.key) === key) this.#lay(frontend, "claim");
  }

  #unclaim({ key }: ServicePlan, frontend: ServiceFrontend): void {
    const { server } = frontend;
    const isHolder = this.#claims.first(server.key) === key;
    this.#claims.delete(server.key, key);
    if (!isHolder) return;
    this.#lay(frontend, "release");
    const next = this.#holderOf(server.key);
    if (next) this.#lay(this.#frontend(next, server.key), "claim");
  }

  #holderOf(server: ServerKey): ServicePlan | undefined {
    const key = this.#claims.first(server);
    return key === undefined ? undefined : this.#plans.get(key);
  }

  #lay({ bound, entries, rule, server }: ServiceFrontend, what: "claim" | "release"): void {
    this.#dirty.add(server.key);
    const all: SetEntry[] = [...entries];
    if (bound !== undefined) all.push(["IPVS-IPS", bound]);
    for (const [set, entry] of all) this.sets[set][what](entry);
    if (bound !== undefined) this.addresses[what](bound);
    if (rule !== undefined) this.rules[what](rule);
  }

  #frontend(plan: ServicePlan, key: ServerKey): ServiceFrontend {
    const frontend = this.#frontends.get(plan)?.get(key) ?? this.#findFrontend(plan, key);
    if (frontend === undefined) {
      throw new Error(`Cannot find '${key}' among the addresses of ${plan.key}`);
    }
    return frontend;
  }

  #findFrontend(plan: ServicePlan, key: ServerKey): ServiceFrontend | undefined {
    const { frontends } = this.#render(plan);
    if (frontends.length > FEW_FRONTENDS) {
      this.#frontends.set(
        plan,
        new Map(frontends.map((frontend) => [frontend.server.key, frontend])),
      );
    }
    return frontends.find(({ server }) => server.key === key);
  }

  #render(plan: ServicePlan): ServiceParts {
    return renderService(plan, this);
  }

  #count(plan: ServicePlan, change: 1 | -1): void {
    const { masqueradeInternal } = plan;
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

/** Leaves the ServicePort out, unless only its scheduler is missing: then the node's own is used. */
export function leaveOutRefused(layout: IpvsLayout, plan: ServicePlan, item: Quarantined): void {
  const { annotations, ...plain } = plan;
  const asksForMore = annotations !== undefined && item.reason.includes("Scheduler");
  layout.quarantine(item, asksForMore ? plain : undefined);
}
