import { IP_FAMILIES, type IpAddress, type IpFamily } from "../net/ip_address.ts";
import type { Port, Protocol } from "../net/port.ts";
import type { DataPlaneDifference, Quarantined } from "./data_plane.ts";
import type { EndpointKey } from "./endpoint.ts";
import type { Packet } from "./packet.ts";
import type {
  AffinityEntry,
  ModeExplanation,
  PacketExplanation,
  PacketHit,
} from "./packet_explanation.ts";
import type { ProxyPlan } from "./proxy_plan.ts";
import type { FrontendRole, ServicePlan } from "./service_plan.ts";
import type { ServicePortKey } from "./service_port_name.ts";
import type { TrafficFigures } from "./service_traffic.ts";

/** One thing that a mode needs of the machine: there, or missing with its cure. */
export interface ProbeResult {
  /** The name, e.g. `bind 127.96.0.1`. */
  readonly feature: string;
  readonly available: boolean;
  /** Whether the mode needs the feature to work. */
  readonly required: boolean;
  /** The result, or why it is missing. */
  readonly detail: string;
  /** The cure for an administrator. */
  readonly cure?: string;
  /** The consequence of its absence, as a sentence without a full stop. */
  readonly lost?: string;
  /** The tool did not answer in time, so the feature may be there. */
  readonly isLate?: boolean;
  /** The IP family that needs it; absent where both do. A mode works when one family has all of its own. */
  readonly family?: IpFamily;
}

/** The part of a plan to compare with the machine. */
export interface ComparisonScope {
  /** Only these ServicePorts, and the shared objects. @default {all} */
  readonly keys?: ReadonlySet<ServicePortKey> | undefined;
  /**
   * Whether extra objects count only beside another difference. Then the comparison of a plan in force
   * costs little more than reading. @default {they count}
   */
  readonly ignoresExtra?: boolean;
  /**
   * Quarantined ServicePorts of the serving process, whose rules must not exist. @default {nothing}
   */
  readonly quarantined?: readonly Quarantined[] | undefined;
  /**
   * Open addresses of the serving process, for a mode that forwards itself. @default {not compared}
   */
  readonly serving?: readonly Pick<ServiceInspection, "key" | "addresses">[] | undefined;
}

/** Traffic of an address for each second, as the kernel estimates it over the last few. */
export interface ServerRates {
  /** New connections. */
  readonly connections: number;
  readonly packetsIn: number;
  readonly packetsOut: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
}

/** The kernel's view of an address's connections. */
export interface ServerLoad {
  /** Established connections. */
  readonly active: number;
  /** All other remembered ones: half open, or just closed. */
  readonly inactive: number;
  /** Absent without connections, and if the kernel does not provide them. */
  readonly rates?: ServerRates;
}

/** An address that a ServicePort is served on. */
export interface ServedAddress {
  readonly role: FrontendRole | "StandIn";
  readonly address: IpAddress;
  readonly port: Port;
  readonly protocol: Protocol;
  readonly state: "serving" | "refusing" | "quarantined";
  /** In a mode in which the kernel counts for each address. */
  readonly load?: ServerLoad;
}

/** The health of an endpoint of a ServicePort, in a mode that checks it. */
export interface EndpointHealth {
  readonly endpoint: EndpointKey;
  /** New connections skip endpoints that are unhealthy or ejected. */
  readonly state: "unchecked" | "healthy" | "unhealthy" | "ejected";
  /** E.g. `connection refused`. */
  readonly reason?: string;
  /** The age of the state. */
  readonly forMs: number;
}

/** An endpoint whose health has changed. */
export interface EndpointHealthChange extends Omit<EndpointHealth, "forMs"> {
  readonly servicePort: ServicePortKey;
}

/** The actual state of the data plane for one ServicePort. */
export interface ServiceInspection {
  readonly key: ServicePortKey;
  readonly addresses: readonly ServedAddress[];
  /** Connections or flows open now, where the backend knows. */
  readonly connections?: number;
  /** The traffic of the ServicePort, if it is counted separately. */
  readonly traffic?: TrafficFigures;
  /** For a Service whose endpoints are checked or ejected. */
  readonly health?: {
    readonly endpoints: readonly EndpointHealth[];
    /** Why all endpoints are used, although some are unhealthy. */
    readonly ignored?: string;
  };
}

/** The actual state of the data plane. */
export interface BackendInspection {
  /** The path by which Service addresses reach this data plane, for display. */
  readonly summary: string;
  readonly services: readonly ServiceInspection[];
  readonly quarantined: readonly Quarantined[];
}

/** One mode of Services, in one IP family, as the tools see it. */
export interface ServiceMode {
  /** Tries each thing that the mode needs and leaves nothing behind. */
  probe(): Promise<readonly ProbeResult[]>;
  /**
   * Renders the plan in the mode's own language, in pieces of a few KB: all of it, or the part for
   * these ServicePorts. Pure.
   */
  render(plan: ProxyPlan, keys?: ReadonlySet<ServicePortKey>): Iterable<string>;
  /**
   * The inputs of {@linkcode render} besides plan and settings; `undefined` before `start()`, and
   * in a mode whose text is the same on every machine.
   */
  facts(): MachineFacts | undefined;
  /** Returns the state of the data plane, for all ServicePorts or some. */
  inspect(keys?: readonly ServicePortKey[]): Promise<BackendInspection>;
  /**
   * Compares the machine with a plan, without changes. Foreign and quarantined objects are no
   * difference. Needs no `start()`.
   */
  compare(plan: ProxyPlan, scope?: ComparisonScope): Promise<readonly DataPlaneDifference[]>;
  /**
   * Reads the machine and writes what differs from the plan, which is the last one that was synced.
   * Returns the operations, as a sync does. Does nothing while a failed sync is about to be tried
   * again, which compares everything. Rejects if something cannot be written.
   */
  repair(plan: ProxyPlan): Promise<Readonly<Record<string, number>>>;
  /**
   * Returns the objects that carry an explained packet, and how this mode deviates from the plan.
   * `hit` is the frontend that the packet hits. Does not query the machine.
   */
  explain(
    plan: ProxyPlan,
    explanation: PacketExplanation,
    hit: PacketHit | undefined,
  ): ModeExplanation;
  /**
   * Returns the remembered endpoint of a client with session affinity; `undefined` = none. Queries
   * the machine. Rejects if it is unknown.
   */
  findAffinity(plan: ServicePlan, client: Packet): Promise<AffinityEntry | undefined>;
}

/**
 * The properties of a machine that a backend's rules depend on, as a portable value: with it another
 * machine renders the same rules. Read once by `start()`, or on each call if they may change.
 */
export interface MachineFacts {
  /** Features of the kernel and the tools, by the mode's own names. */
  readonly features: Readonly<Record<string, boolean>>;
  /** Whether `nf_conntrack_tcp_be_liberal` is set, in a mode whose rules depend on it. */
  readonly beLiberal?: boolean;
}

/** The features of a mode as found; a feature that was not recorded keeps its value in `all`. */
export function featuresFound<T extends { readonly [K in keyof T]: boolean }>(
  all: T,
  { features }: MachineFacts,
): T {
  const found = new Map(Object.entries(features));
  const entries = Object.entries<boolean>(all).map(([name, usual]) => [
    name,
    found.get(name) ?? usual,
  ]);
  return Object.fromEntries(entries) as T;
}

/** The features of a machine that a mode needs. */
export interface ModeSupport {
  /** IP families that have all they need; empty = the mode cannot run. */
  readonly families: readonly IpFamily[];
  /** Missing requirements, of both families. */
  readonly missing: readonly ProbeResult[];
  /** Missing features that the mode can work without. */
  readonly reduced: readonly ProbeResult[];
}

/**
 * A mode can run if the machine has all shared requirements and all those of at least one family. A
 * host without IPv6 can run every mode; upstream, too, omits the family then.
 */
export function supportOf(results: readonly ProbeResult[]): ModeSupport {
  const absent = results.filter(({ available }) => !available);
  const missing = absent.filter(({ required }) => required);
  const shared = missing.some(({ family }) => family === undefined);
  return {
    families: shared
      ? []
      : IP_FAMILIES.filter((each) => !missing.some((row) => row.family === each)),
    missing,
    reduced: absent.filter(({ required }) => !required),
  };
}

/** The missing features and their cures, as one line for an error or the log. */
export function missingText(missing: readonly ProbeResult[]): string {
  return missing.map(({ feature, family, detail, cure }) => {
    const name = family === undefined ? feature : `${feature} (${family})`;
    return `${name}: ${detail}${cure === undefined ? "" : ` (${cure})`}`;
  }).join("; ");
}
