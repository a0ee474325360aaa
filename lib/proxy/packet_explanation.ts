/**
 * What becomes of a packet, and why: the answer as data. Everything in it can be written as JSON.
 *
 * @module
 */
import type { Cidr } from "../net/cidr.ts";
import type { IpAddress } from "../net/ip_address.ts";
import type { Port, Protocol } from "../net/port.ts";
import type { ServedAddress } from "./service_mode.ts";
import type { DataPlaneDifference } from "./data_plane_difference.ts";
import type { EndpointKey } from "./endpoint.ts";
import type { Packet } from "./packet.ts";
import type { TrafficPolicy, UnproxiedReason } from "./service_port.ts";
import type { ServicePortKey } from "./service_port_name.ts";
import type { ExclusionReason } from "./topology.ts";

/** What an address is to the ServicePort that has it. */
export type AddressRole = Exclude<ServedAddress["role"], "StandIn">;

/** Which of the verdicts of a ServicePlan binds a packet. */
export type VerdictName = "internal" | "external" | "externalFromCluster";

/** As what the sender counts. */
export interface ExplainedOrigin {
  /** By the detector of local traffic; `undefined` = it can't tell. */
  readonly isFromPod: boolean | undefined;
  readonly isFromNode: boolean;
}

/** The ServicePort that has the address and port. */
interface ExplainedService {
  readonly key: ServicePortKey;
  readonly role: AddressRole;
  /** Others that claim the same, and do not get it. */
  readonly losers: readonly ServicePortKey[];
}

/** A ServicePort or Service that may have been meant. */
export interface NearMiss {
  readonly kind:
    /** It has the address, with another port or protocol. */
    | "other-port"
    /** It has the address, and its endpoints have the port. */
    | "target-port"
    /** It has the port as node port, and the packet is for an address that serves none. */
    | "node-port"
    /** The address and port are those of one of its endpoints. */
    | "endpoint"
    /** It has the port, on another address. */
    | "other-address"
    /** Its object has the address, and nothing is planned for it. */
    | "unserved";
  /** Key of a ServicePort, or `namespace/name` of a Service. */
  readonly service: string;
  readonly address: IpAddress;
  readonly port?: Port;
  readonly protocol?: Protocol;
  /** Of an unserved one: why. */
  readonly reason?: UnservedReason;
}

/** Why an address of a Service object is not served. */
export type UnservedReason = UnproxiedReason | "external IP" | "ipMode Proxy" | "no usable port";

/** Why nothing of ours has a part in a packet. */
type UnclaimedReason = "nobody" | "quarantined" | "unserved-by-mode";

/** What becomes of the packet. */
export type ExplainedVerdict =
  | { readonly kind: "forward" }
  /** `why`: no endpoint at all; none by policy Local; its source is not admitted; or the mode can't. */
  | { readonly kind: "reject" | "drop"; readonly why: RefusalReason; readonly detail?: string }
  /** No Service has it in effect. */
  | {
    readonly kind: "unclaimed";
    readonly why: UnclaimedReason;
    readonly detail?: string;
    /** Whether it goes on as if no proxy were there, or is kept from that. */
    readonly fate: "passes" | "reject" | "drop";
    readonly fateWhy?: string;
  };

/** Why a packet to a Service is not forwarded. */
type RefusalReason = "no-endpoints" | "no-local-endpoints" | "source-ranges" | "mode";

/** One endpoint of the ServicePort. */
export interface ExplainedEndpoint {
  readonly key: EndpointKey;
  readonly isLocal: boolean;
  readonly nodeName?: string;
  /** Whether the packet may go there. */
  readonly eligible: boolean;
  /** Why not. */
  readonly exclusion?: ExclusionReason;
  /** Why the mode leaves it out, where the plan does not. */
  readonly leftOut?: string;
  readonly ready: boolean;
  readonly serving: boolean;
  readonly terminating: boolean;
  readonly zoneHints?: readonly string[];
  readonly nodeHints?: readonly string[];
  /** Of one that is eligible: whether it sees an address of the node in place of the sender's. */
  readonly seesNode?: boolean;
}

/** How the endpoints were chosen. */
export interface ExplainedPolicy {
  readonly verdict: VerdictName;
  readonly policy: TrafficPolicy;
  /** What the Service says; another one where the sender is not bound by it. */
  readonly ofService: TrafficPolicy;
  readonly isFallback: boolean;
  readonly hints?: "node" | "zone";
  /** Why a mode applies another policy than others would. */
  readonly modeReason?: string;
}

/** Why a source address changes, or does not. */
export type SourceReason =
  | "cluster-policy"
  | "from-node"
  | "keeps-client"
  | "masquerade-all"
  | "mode"
  | "no-detector"
  | "off-cluster"
  | "pod";

/** What the endpoints see as source. */
export interface ExplainedSource {
  /** `own-packets`: only an endpoint that is sent its own packet sees the node. */
  readonly rewritten: "always" | "own-packets" | "never";
  readonly reason: SourceReason;
  /** What the mode has to say of it. */
  readonly detail?: string;
}

/** Where clients stay with their endpoint. */
interface ExplainedAffinity {
  readonly timeoutSeconds: number;
  /** What is remembered of this client: absent = that was not asked, or cannot be told. */
  readonly entry?: AffinityEntry | "none";
  /** Why nothing can be told. */
  readonly unknown?: string;
}

/** Where a client goes, as long as it comes again in time. */
export interface AffinityEntry {
  readonly endpoint: EndpointKey;
  /** Seconds until it is forgotten. */
  readonly expiresInSeconds?: number;
}

/** One object of the data plane that has a part in what becomes of the packet. */
export interface PacketCarrier {
  /** What kind of thing it is, in the mode's own words. As {@linkcode DataPlaneDifference.object}. */
  readonly object: string;
  /** What a person would look for. */
  readonly name: string;
  /** As the mode writes it: part of what `render` prints. */
  readonly text: string;
}

/** Whether the machine has it. */
export type KernelState =
  | { readonly kind: "asked"; readonly differences: readonly DataPlaneDifference[] }
  | { readonly kind: "not asked"; readonly why: string };

/** One step of the explanation, for people. */
export interface ExplanationStep {
  readonly topic:
    | "from"
    | "to"
    | "policy"
    | "sources"
    | "endpoints"
    | "source"
    | "affinity"
    | "nearest"
    | "carriers"
    | "kernel";
  readonly text: string;
  /** Further lines, one item each. */
  readonly items?: readonly string[];
}

/** The answer. */
export interface PacketExplanation {
  readonly packet: Packet;
  readonly origin: ExplainedOrigin;
  readonly service?: ExplainedService;
  /** Of a packet that no Service has. */
  readonly nearMisses: readonly NearMiss[];
  /** The range of cluster IPs that the destination is in. */
  readonly serviceCidr?: Cidr;
  readonly sourceRanges?: {
    readonly admitted: boolean;
    readonly ranges: readonly Cidr[];
    /** The exception for the node's own packets decided, not the ranges. */
    readonly isException?: true;
  };
  readonly policy?: ExplainedPolicy;
  readonly verdict: ExplainedVerdict;
  readonly endpoints: readonly ExplainedEndpoint[];
  readonly source?: ExplainedSource;
  readonly affinity?: ExplainedAffinity;
  readonly carriers: readonly PacketCarrier[];
}

/** Where a mode differs from what the plan says, each with its reason for people. */
export interface ModeDeviations {
  /** Whether the source ranges admit the packet, by the source that it has in this mode. */
  readonly admitted?: boolean;
  /** Who is in the cluster is treated as if not. */
  readonly asOutsider?: string;
  /** It is not forwarded, or refused in another way. */
  readonly refusal?: { readonly kind: "drop" | "reject"; readonly detail: string };
  /** The mode does not serve this address at all. */
  readonly unserved?: string;
  /** Another source address. */
  readonly source?: { readonly rewritten: "always" | "never"; readonly detail: string };
  /** Endpoints that the mode does not forward to, with the reason. */
  readonly leftOut?: ReadonlyMap<EndpointKey, string>;
  /** What becomes of it where no Service has it. */
  readonly fate?: { readonly kind: "reject" | "drop"; readonly why: string };
}

/** What a mode has to say of a packet. */
export interface ModeExplanation {
  readonly deviations?: ModeDeviations;
  /** What carries it, in the order in which the packet meets it. */
  readonly carriers: readonly PacketCarrier[];
}
