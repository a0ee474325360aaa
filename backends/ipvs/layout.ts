/**
 * The desired state: the ServicePorts that are served, and the plans by which they are. Pure except
 * for its own state. The objects in the kernel are rendered from the plans on demand.
 *
 * @module
 */
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { Endpoint } from "../../lib/proxy/endpoint.ts";
import { deepEqual } from "../../lib/proxy/deep_equal.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { ServicePortIndex } from "../../lib/proxy/service_port_index.ts";
import {
  type ServiceKey,
  serviceKey,
  type ServicePortKey,
} from "../../lib/proxy/service_port_name.ts";
import type { BaseRuleContext } from "./base_rules.ts";
import { PostponedServices } from "./postponed_services.ts";
import type { IpvsRenderOptions } from "./render_options.ts";
import { endpointsOf, type RenderInputs, renderService } from "./render_service.ts";
import type { ServiceFrontend } from "./service_frontend.ts";
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
  readonly #claims = new ServicePortIndex<ServerKey>();
  /** An index of the frontends of large plans, until the desired state is applied. */
  readonly #frontends = new Map<ServicePlan, ReadonlyMap<ServerKey, ServiceFrontend>>();
  readonly #dirty = new Set<ServicePortKey>();
  readonly #problems = new Map<ServicePortKey, readonly Quarantined[]>();
  readonly #masquerade = new Map<ServicePlan["masqueradeInternal"], number>();
  readonly #realServers = new Map<ServiceKey, number>();
  readonly #postponed = new PostponedServices();
  #isApplied = false;

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

  /** Whether ServicePorts wait for one of the next writes. */
  get hasPostponed(): boolean {
    return this.#postponed.size > 0;
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

  /** The same as it was asked for. */
  askedPlan(key: ServicePortKey): ServicePlan | undefined {
    return this.#asked.get(key) ?? this.#plans.get(key);
  }

  /** The virtual server of a key; `undefined` = it is not wanted. */
  server(key: ServerKey): WantedServer | undefined {
    const owner = this.#claims.first(key);
    const plan = owner === undefined ? undefined : this.#plans.get(owner);
    if (plan === undefined) return undefined;
    const { server, endpoints } = this.#frontend(plan, key);
    return { server, endpoints, owner: plan.key };
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

  /**
   * Serves a ServicePort by a plan, and takes it out of quarantine. A new one with very many
   * frontends waits for one of the next writes, unless nothing was applied yet: the kernel may
   * already serve it.
   */
  set(plan: ServicePlan): void {
    const previous = this.#plans.get(plan.key);
    if (previous === plan) return;
    const isServed = !this.#isApplied || previous !== undefined;
    if (this.#postponed.admits(plan, { isServed, shared: this.shared })) this.#set(plan);
  }

  /** Lays out those that waited, as far as there is room in a write. */
  setPostponed(): void {
    for (const plan of this.#postponed.plans) this.set(plan);
  }

  /** Stops serving a ServicePort. */
  delete(key: ServicePortKey): void {
    this.#postponed.delete(key);
    this.#asked.delete(key);
    this.#problems.delete(key);
    const plan = this.#plans.get(key);
    if (plan === undefined) return;
    for (const { server } of renderService(plan, this).frontends) {
      this.#claims.delete(server.key, key);
    }
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
    this.#isApplied = true;
    this.#dirty.clear();
    this.#frontends.clear();
    this.#postponed.begin();
  }

  #set(plan: ServicePlan): void {
    const { key } = plan;
    this.delete(key);
    const { frontends, quarantined } = renderService(plan, this);
    this.#plans.set(key, plan);
    this.#count(plan, 1);
    for (const { server } of frontends) this.#claims.add(server.key, key);
    if (quarantined.length > 0) this.#problems.set(key, quarantined);
  }

  #frontend(plan: ServicePlan, key: ServerKey): ServiceFrontend {
    const frontend = this.#frontends.get(plan)?.get(key) ?? this.#findFrontend(plan, key);
    if (frontend === undefined) {
      throw new Error(`Cannot find '${key}' among the addresses of ${plan.key}`);
    }
    return frontend;
  }

  #findFrontend(plan: ServicePlan, key: ServerKey): ServiceFrontend | undefined {
    const { frontends } = renderService(plan, this);
    if (frontends.length > FEW_FRONTENDS) {
      this.#frontends.set(
        plan,
        new Map(frontends.map((frontend) => [frontend.server.key, frontend])),
      );
    }
    return frontends.find(({ server }) => server.key === key);
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
