/** ServicePlans and endpoints with only the fields under test. */
import { type IpFamily, parseIpAddress } from "../../../lib/net/ip_address.ts";
import { formatHostPort, parsePort, type Protocol } from "../../../lib/net/port.ts";
import { deepEqual } from "../../../lib/proxy/deep_equal.ts";
import type { Endpoint, EndpointKey } from "../../../lib/proxy/endpoint.ts";
import { ownedAddresses, type ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { FrontendOwners } from "../../../lib/proxy/frontend_owners.ts";
import type { PlanChanges, ProxyPlan, SharedPlan } from "../../../lib/proxy/proxy_plan.ts";
import { type ServicePortKey, servicePortKey } from "../../../lib/proxy/service_port_name.ts";
import type { Verdict } from "../../../lib/proxy/verdict.ts";

/** A ready endpoint, from `ip:port` or `[ip]:port`. */
export function testEndpoint(text: string, overrides: Partial<Endpoint> = {}): Endpoint {
  const colon = text.lastIndexOf(":");
  const address = parseIpAddress(text.slice(0, colon).replace(/^\[|\]$/g, ""));
  const port = parsePort(text.slice(colon + 1));
  const key = formatHostPort(address, port) as EndpointKey;
  const conditions = { isLocal: false, ready: true, serving: true, terminating: false };
  return { key, address, port, ...conditions, ...overrides };
}

/** A verdict that forwards to the endpoints, or rejects when there are none. */
export function testForward(...endpoints: readonly string[]): Verdict {
  if (endpoints.length === 0) return { kind: "reject" };
  return { kind: "forward", endpoints: endpoints.map((text) => testEndpoint(text)) };
}

/** The arguments of {@linkcode testServicePlan}; texts are parsed. */
export interface TestServicePlan extends
  Partial<
    Omit<
      ServicePlan,
      "name" | "key" | "clusterIp" | "port" | "nodePort" | "externalIps" | "loadBalancerVips"
    >
  > {
  /** Service in namespace `ns`. @default {"web"} */
  readonly name?: string;
  readonly portName?: string;
  readonly clusterIp?: string;
  readonly port?: number;
  readonly nodePort?: number;
  readonly externalIps?: readonly string[];
  readonly loadBalancerVips?: readonly string[];
  /** For each verdict that is not given. @default {[]} */
  readonly to?: readonly string[];
}

/** A TCP ServicePlan on 127.96.0.1:80 without endpoints, with overrides. */
export function testServicePlan(options: TestServicePlan = {}): ServicePlan {
  const { name: service = "web", portName = "", to = [], nodePort, ...rest } = options;
  const protocol: Protocol = options.protocol ?? "TCP";
  const name = { namespace: "ns", name: service, port: portName, protocol };
  const verdict = testForward(...to);
  return {
    masqueradeInternal: "none",
    externalTrafficPolicy: "Cluster",
    internalTrafficPolicy: "Cluster",
    reachable: [],
    endpoints: [],
    internal: verdict,
    external: options.external ?? verdict,
    externalFromCluster: options.external ?? verdict,
    ...rest,
    name,
    key: servicePortKey(name),
    protocol,
    clusterIp: parseIpAddress(options.clusterIp ?? "127.96.0.1"),
    port: parsePort(options.port ?? 80),
    ...(nodePort === undefined ? {} : { nodePort: parsePort(nodePort) }),
    externalIps: (options.externalIps ?? []).map(parseIpAddress),
    loadBalancerVips: (options.loadBalancerVips ?? []).map(parseIpAddress),
  };
}

/** The shared part of a plan, for a node without anything special. */
export function testSharedPlan(overrides: Partial<SharedPlan> = {}): SharedPlan {
  return {
    nodePortRanges: { kind: "all" },
    nodePortAddresses: [],
    interfaceAddresses: [],
    serviceCidrs: [],
    localTraffic: { kind: "none" },
    node: { name: "" },
    ...overrides,
  };
}

/** A ProxyPlan of these ServicePlans. */
export function testProxyPlan(
  services: readonly ServicePlan[],
  options: { readonly family?: IpFamily; readonly shared?: Partial<SharedPlan> } = {},
): ProxyPlan {
  const shared = testSharedPlan(options.shared);
  return {
    family: options.family ?? "IPv4",
    services: new Map(withOwners(services, shared).map((plan) => [plan.key, plan])),
    shared,
  };
}

/** The plans without the frontends that belong to another of them. */
export function withOwners(
  services: readonly ServicePlan[],
  { nodePortAddresses }: Pick<SharedPlan, "nodePortAddresses">,
): readonly ServicePlan[] {
  const owners = new FrontendOwners();
  owners.setSettings([], { sharesByServerName: true });
  owners.setNodeAddresses({ interfaceAddresses: [], nodePortAddresses });
  const claimants = new Map(services.map((plan) => [plan.key, plan]));
  for (const plan of claimants.values()) owners.update(plan.key, plan);
  owners.decide();
  return services.map((plan) => {
    const contested = owners.contestedOf(plan);
    const shared = owners.sharedOf(plan);
    const { nodePort: _, ...rest } = plan;
    const owned: ServicePlan = {
      ...rest,
      ...ownedAddresses(plan, contested),
      ...(shared && { shared }),
    };
    const last = lastOwned.get(plan) ?? plan;
    const kept = deepEqual(last, owned) ? last : owned;
    lastOwned.set(plan, kept);
    return kept;
  });
}

/** Gives a layout the plans of added, changed and removed Services, each with its frontends. */
export class OwnedPlans {
  readonly #services = new Map<ServicePortKey, ServicePlan>();
  readonly #shared: Pick<SharedPlan, "nodePortAddresses">;
  readonly #layout: {
    set(plan: ServicePlan): void;
    delete(key: ServicePortKey): void;
  };
  #owned = new Map<ServicePortKey, ServicePlan>();

  constructor(
    layout: { set(plan: ServicePlan): void; delete(key: ServicePortKey): void },
    shared: Pick<SharedPlan, "nodePortAddresses">,
  ) {
    this.#layout = layout;
    this.#shared = shared;
  }

  /** The ServicePorts in the layout. */
  values(): readonly ServicePlan[] {
    return [...this.#owned.values()];
  }

  set(plan: ServicePlan): void {
    this.#services.set(plan.key, plan);
    this.#update();
  }

  delete(key: ServicePortKey): void {
    this.#services.delete(key);
    this.#layout.delete(key);
    this.#update();
  }

  #update(): void {
    const before = this.#owned;
    const plans = withOwners([...this.#services.values()], this.#shared);
    this.#owned = new Map(plans.map((plan) => [plan.key, plan]));
    for (const plan of plans) if (before.get(plan.key) !== plan) this.#layout.set(plan);
  }
}

/** Plans keep their identity while they are the same. */
const lastOwned = new WeakMap<ServicePlan, ServicePlan>();

/** Returns the changes from an earlier plan, or from nothing. */
export function testPlanChanges(plan: ProxyPlan, previous?: ProxyPlan): PlanChanges {
  const upserted = [...plan.services].filter(([key, value]) =>
    previous?.services.get(key) !== value
  );
  const removed = [...previous?.services ?? []].filter(([key]) => !plan.services.has(key));
  return {
    upserted: new Set(upserted.map(([key]) => key)),
    removed: new Map(removed),
    shared: previous?.shared !== plan.shared,
    everything: previous === undefined,
  };
}
