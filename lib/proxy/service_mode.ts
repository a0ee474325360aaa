/**
 * What the tools need of a mode of Services. Owned by its callers; implementations are in `backends/`.
 *
 * @module
 */
import type { IpAddress, IpFamily } from "../net/ip_address.ts";
import type { Port, Protocol } from "../net/port.ts";
import type { DataPlaneDifference, DataPlaneRepair } from "./data_plane_difference.ts";
import type { Quarantined } from "./data_plane.ts";
import type { MachineFacts } from "./machine_facts.ts";
import type { Packet } from "./packet.ts";
import type {
  AffinityEntry,
  ModeExplanation,
  PacketCarrier,
  PacketExplanation,
} from "./packet_explanation.ts";
import type { FrontendRole } from "./frontend.ts";
import type { ProxyPlan } from "./proxy_plan.ts";
import type { ServicePlan } from "./service_plan.ts";
import type { ServicePortKey } from "./service_port_name.ts";
import type { TrafficFigures } from "./service_traffic.ts";

/** One thing that a mode needs of the machine: there, or missing with its cure. */
export interface ProbeResult {
  /** What was tried, e.g. `bind 127.96.0.1`. */
  readonly feature: string;
  readonly available: boolean;
  /** Whether the mode works at all without it. */
  readonly required: boolean;
  /** What was found, or why it is missing. */
  readonly detail: string;
  /** What an admin would do about it. */
  readonly cure?: string;
  /** What does not work without it, as a sentence without a full stop. */
  readonly lost?: string;
  /** The IP family that needs it; absent where both do. A mode works when one family has all of its own. */
  readonly family?: IpFamily;
}

/** What of a plan is compared with the machine. */
export interface ComparisonScope {
  /** These ServicePorts, and what all share. @default {all} */
  readonly keys?: ReadonlySet<ServicePortKey> | undefined;
  /** Of the process that serves: what the kernel refused is not to be there. @default {nothing} */
  readonly quarantined?: readonly Quarantined[] | undefined;
  /**
   * What the process that serves has open, for a mode that serves by itself. @default {nobody was
   * asked, and it is not compared}
   */
  readonly serving?: readonly Pick<ServiceInspection, "key" | "addresses">[] | undefined;
}

/** What goes through an address in a second, as the kernel estimates it over the last few. */
export interface ServerRates {
  /** New connections. */
  readonly connections: number;
  readonly packetsIn: number;
  readonly packetsOut: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
}

/** What the kernel knows of the connections to an address. */
export interface ServerLoad {
  /** Established connections. */
  readonly active: number;
  /** All others that are remembered: half open, or closed a moment ago. */
  readonly inactive: number;
  /** Absent where nothing is remembered, and where the kernel does not tell. */
  readonly rates?: ServerRates;
}

/** An address that a ServicePort is served on. */
export interface ServedAddress {
  readonly role: FrontendRole | "StandIn";
  readonly address: IpAddress;
  readonly port: Port;
  readonly protocol: Protocol;
  readonly state: "serving" | "refusing" | "quarantined";
  /** By a mode in which the kernel counts for each address. */
  readonly load?: ServerLoad;
}

/** What the data plane really holds for one ServicePort. */
export interface ServiceInspection {
  readonly key: ServicePortKey;
  readonly addresses: readonly ServedAddress[];
  /** Connections or flows open now, where the backend knows. */
  readonly connections?: number;
  /** What went through it, where that is counted and it has counters of its own. */
  readonly traffic?: TrafficFigures;
}

/** What the data plane really holds. */
export interface BackendInspection {
  /** How Service addresses reach this data plane, for a person to read. */
  readonly summary: string;
  readonly services: readonly ServiceInspection[];
  readonly quarantined: readonly Quarantined[];
}

/** One mode of Services, in one IP family, as the tools see it. */
export interface ServiceMode {
  /** Tries each thing that the mode needs and leaves nothing behind. */
  probe(): Promise<readonly ProbeResult[]>;
  /**
   * The plan in the mode's own language, in pieces of some KB: all of it, or what is for these
   * ServicePorts with what leads there. Pure.
   */
  render(plan: ProxyPlan, keys?: ReadonlySet<ServicePortKey>): Iterable<string>;
  /** As {@linkcode render} for each of these ServicePorts alone, in their order. */
  renderEach(
    plan: ProxyPlan,
    keys: ReadonlySet<ServicePortKey>,
  ): Iterable<readonly [ServicePortKey, string]>;
  /**
   * What {@linkcode render} depends on besides the plan and the settings; `undefined` before `start()`,
   * and in a mode whose text is the same on every machine.
   */
  facts(): MachineFacts | undefined;
  /** What the data plane holds, of some or all ServicePorts. */
  inspect(keys?: readonly ServicePortKey[]): Promise<BackendInspection>;
  /**
   * How what the machine holds now differs from a plan. Asks the machine and changes nothing; what
   * other software has there is no difference, nor is what is in quarantine. Needs no `start()`.
   */
  compare(plan: ProxyPlan, scope?: ComparisonScope): Promise<readonly DataPlaneDifference[]>;
  /**
   * Writes what {@linkcode compare} finds to differ and nothing else, and compares again. For a process
   * that serves nothing: it needs no `start()`, and what the serving process knows stays true.
   * Rejects where something cannot be written.
   */
  repair(plan: ProxyPlan, scope?: ComparisonScope): Promise<DataPlaneRepair>;
  /**
   * What carries a packet that a plan has explained, and where this mode treats it in another way than
   * the plan says. Asks nothing of the machine.
   */
  explain(plan: ProxyPlan, explanation: PacketExplanation): ModeExplanation;
  /**
   * Which of these the machine does not have. Asks for them alone, so that it takes the same time
   * whatever the number of Services. Rejects with the reason where it cannot ask; `undefined` in a mode
   * that has to compare everything.
   */
  findMissing(
    carriers: readonly PacketCarrier[],
  ): Promise<readonly DataPlaneDifference[] | undefined>;
  /**
   * What is remembered of a client of a ServicePort with session affinity; `undefined` = nothing. Asks
   * the machine. Rejects with the reason where it cannot be known.
   */
  findAffinity(plan: ServicePlan, client: Packet): Promise<AffinityEntry | undefined>;
}

/** {@linkcode ServiceMode.renderEach} of a mode that is no faster with all of them at once. */
export function* renderOneByOne(
  { render }: { readonly render: (key: ServicePortKey) => Iterable<string> },
  keys: ReadonlySet<ServicePortKey>,
): Generator<readonly [ServicePortKey, string]> {
  for (const key of keys) yield [key, [...render(key)].join("")];
}
