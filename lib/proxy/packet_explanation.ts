import type { Cidr } from "../net/cidr.ts";
import type { IpAddress } from "../net/ip_address.ts";
import type { Port, Protocol } from "../net/port.ts";
import type { DataPlaneDifference } from "./data_plane.ts";
import type { EdgeSettings } from "./edge_settings.ts";
import type { Endpoint, EndpointKey } from "./endpoint.ts";
import type { Frontend } from "./frontend.ts";
import type { ExclusionReason, FrontendRole, Precedence, ServicePlan } from "./service_plan.ts";
import type { Packet } from "./packet.ts";
import type { ModeAnnotations, TrafficPolicy, UnproxiedReason } from "./service_port.ts";
import type { ServicePortKey } from "./service_port_name.ts";

/** The verdict of a ServicePlan that applies to a packet. */
export type VerdictName = "internal" | "external" | "externalFromCluster";

/** The class of the sender. */
export interface ExplainedOrigin {
  /** From the detector of local traffic; `undefined` = unknown. */
  readonly isFromPod: boolean | undefined;
  readonly isFromNode: boolean;
}

/** The ServicePort that owns the address and port. */
interface ExplainedService {
  readonly key: ServicePortKey;
  readonly role: FrontendRole;
  /** Other ServicePorts that claim the address and port without owning it, and why they do not. */
  readonly otherClaimants: readonly { readonly key: ServicePortKey; readonly why: Precedence }[];
  /** Where each server name leads, if the address is shared by them. */
  readonly names?: PacketHit["names"];
}

/** The ServicePort that owns an address and port, or there the server name of a packet. */
export interface PacketHit {
  readonly service: ServicePlan;
  readonly frontend: Frontend;
  /** Other claimants, and why they are not the owner. */
  readonly otherClaimants: readonly { readonly key: ServicePortKey; readonly why: Precedence }[];
  /** Where each server name leads; `undefined` = the address is not shared by them. */
  readonly names?: readonly { readonly name: string; readonly key: ServicePortKey }[];
  /** No ServicePort has the server name; {@linkcode service} is another one at the address. */
  readonly isNameless?: true;
}

/** A ServicePort or Service that the user may have meant. */
export interface NearMiss {
  readonly kind:
    /** It has the address, with another port or protocol. */
    | "other-port"
    /** It has the address, and its endpoints have the port. */
    | "target-port"
    /** It has the port as node port, but the destination serves no node ports. */
    | "node-port"
    /** It asks for the address and port, which kube-relay itself listens on. */
    | "own-port"
    /** It asks for the address and port, which no Service may have on this node. */
    | "refused"
    /** The address and port are those of one of its endpoints. */
    | "endpoint"
    /** It has the port, on another address. */
    | "other-address"
    /** The Service has the address, but the plan has no frontend for it. */
    | "unserved";
  /** Key of a ServicePort, or `namespace/name` of a Service. */
  readonly service: string;
  readonly address: IpAddress;
  readonly port?: Port;
  readonly protocol?: Protocol;
  /** The reason why it is not served, for kind `unserved`. */
  readonly reason?: UnservedReason;
}

/** The reason why an address of a Service object is not served. */
export type UnservedReason =
  | UnproxiedReason
  | "external IP"
  | "ipMode Proxy"
  | "skipped"
  | "no usable port";

/** The reason why kube-relay does not handle a packet. */
type UnclaimedReason = "no-service" | "own-port" | "quarantined" | "refused" | "unserved-by-mode";

/** The result for the packet. */
export type ExplainedVerdict =
  | { readonly kind: "forward" }
  /**
   * `why`: no endpoint at all; none by policy Local; source not admitted; or not possible in the
   * mode.
   */
  | { readonly kind: "reject" | "drop"; readonly why: RefusalReason; readonly detail?: string }
  /** No Service has this address in effect. */
  | {
    readonly kind: "unclaimed";
    readonly why: UnclaimedReason;
    readonly detail?: string;
    /** Whether the packet passes as if there were no proxy, or is rejected or dropped. */
    readonly outcome: "passes" | "reject" | "drop";
    readonly outcomeReason?: string;
  };

/** The reason why a packet to a Service is not forwarded. */
type RefusalReason = "no-endpoints" | "no-local-endpoints" | "source-ranges" | "mode";

/** One endpoint of the ServicePort. */
export interface ExplainedEndpoint extends Omit<Endpoint, "address" | "port"> {
  /** Whether the packet may go there. */
  readonly eligible: boolean;
  /** The reason why the packet may not use this endpoint. */
  readonly exclusion?: ExclusionReason;
  /** The reason why the mode does not use it, although the plan does. */
  readonly leftOut?: string;
  /** For an eligible endpoint: whether it sees an address of the node instead of the sender's. */
  readonly seesNode?: boolean;
}

/** The policy by which the endpoints were chosen. */
interface ExplainedPolicy {
  readonly verdict: VerdictName;
  readonly policy: TrafficPolicy;
  /** The policy of the Service; `policy` differs if the sender is not bound by it. */
  readonly ofService: TrafficPolicy;
  readonly isFallback: boolean;
  readonly hints?: "node" | "zone";
  /** The reason why a mode applies a different policy from other modes. */
  readonly modeReason?: string;
}

/** The reason why a source address changes, or does not. */
export type SourceReason =
  | "cluster-policy"
  | "from-node"
  | "keeps-client"
  | "masquerade-all"
  | "mode"
  | "no-detector"
  | "off-cluster"
  | "pod";

/** The source address that the endpoints see. */
export interface ExplainedSource {
  /** `own-packets`: only an endpoint that receives its own packet sees the node's address. */
  readonly rewritten: "always" | "own-packets" | "never";
  readonly reason: SourceReason;
  /** The mode's explanation. */
  readonly detail?: string;
}

/** The session affinity of the ServicePort. */
interface ExplainedAffinity {
  readonly timeoutSeconds: number;
  /** The affinity entry of this client; absent = not queried, or unknown. */
  readonly entry?: AffinityEntry | "none";
  /** The reason why the entry is unknown. */
  readonly unknown?: string;
}

/** The endpoint of a client, while the entry has not expired. */
export interface AffinityEntry {
  readonly endpoint: EndpointKey;
  /** Seconds until the entry expires. */
  readonly expiresInSeconds?: number;
}

/** One object of the data plane that affects the packet. */
export interface PacketCarrier {
  /** The kind of object, in the mode's own words. As {@linkcode DataPlaneDifference.object}. */
  readonly object: string;
  /** The name that an administrator would search for. */
  readonly name: string;
  /** As the mode writes it: part of what `render` prints. */
  readonly text: string;
}

/** Whether the machine has these objects. */
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
    | "settings"
    | "egress"
    | "ingress"
    | "nearest"
    | "carriers"
    | "kernel";
  readonly text: string;
  /** Further lines, one item each. */
  readonly items?: readonly string[];
}

/** The complete explanation. */
export interface PacketExplanation {
  readonly packet: Packet;
  readonly origin: ExplainedOrigin;
  readonly service?: ExplainedService;
  /** For a packet to no Service. */
  readonly nearMisses: readonly NearMiss[];
  /** The range of cluster IPs that contains the destination. */
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
  /** Settings of the Service that only mode userspace applies. */
  readonly edge?: EdgeSettings;
  /** The annotations of the Service for single modes. */
  readonly annotations?: ModeAnnotations;
  readonly carriers: readonly PacketCarrier[];
}

/** Deviations of a mode from the plan, each with its reason for the user. */
export interface ModeDeviations {
  /** Senders in the cluster are treated as outside. */
  readonly asOutsider?: string;
  /** The packet is not forwarded, or refused in another way. */
  readonly refusal?: { readonly kind: "drop" | "reject"; readonly detail: string };
  /** The mode never serves this address. */
  readonly unserved?: string;
  /** Another source address. */
  readonly source?: { readonly rewritten: "always" | "never"; readonly detail: string };
  /** Endpoints that the mode does not forward to, with the reason. */
  readonly leftOut?: ReadonlyMap<EndpointKey, string>;
  /** The result if no Service has the address. */
  readonly outcome?: { readonly kind: "reject" | "drop"; readonly why: string };
}

/** An object of a frontend. */
export interface ModeCarrier extends PacketCarrier {
  /** Other frontends use it too. */
  readonly isShared?: boolean;
  /** The endpoint that it leads to. */
  readonly endpoint?: string | undefined;
}

/** A mode's part of the explanation. */
export interface ModeExplanation {
  readonly deviations?: ModeDeviations;
  /**
   * The objects of the frontend that the packet hits, in the order in which a packet meets them; of a
   * refusal without a frontend, the objects that refuse.
   */
  readonly carriers: readonly ModeCarrier[];
}
