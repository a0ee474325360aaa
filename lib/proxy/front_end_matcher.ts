/**
 * Judges tracked UDP flows by who may answer at the front ends that are looked at.
 *
 * @module
 */
import type { IpAddress } from "../net/ip_address.ts";
import { formatHostPort, type Port } from "../net/port.ts";
import type { Endpoint } from "./endpoint.ts";
import type { ServicePlan } from "./service_plan.ts";
import type { ServicePortKey } from "./service_port_name.ts";

/** Of a tracked UDP flow what decides: where its client sends to, and who answers. */
export interface UdpFlow {
  readonly destination: IpAddress;
  readonly destinationPort: Port;
  /** The endpoint; the destination itself for a flow that no rule has turned. */
  readonly replySource: IpAddress;
  readonly replySourcePort: Port;
}

/** What may have stale flows. */
export interface SuspectFrontEnds {
  /** ServicePorts that are there. */
  readonly keys: ReadonlySet<ServicePortKey>;
  /** `ip:port` that some ServicePort had and gave up; and node ports, with whose they were. */
  readonly goneAddresses: ReadonlyMap<string, GoneAddress>;
  readonly goneNodePorts: ReadonlyMap<Port, ServicePortKey>;
}

/** What was given up. */
export interface GoneAddress {
  readonly port: Port;
  /** Who had it last. */
  readonly key: ServicePortKey;
}

/** Judges flows to suspects, by all that has come since it was made too, until it is disposed of. */
export interface StaleFlowMatcher extends Disposable {
  /** Destination ports that a stale flow may have; empty = there is nothing to look for. */
  readonly ports: ReadonlySet<Port>;
  /** Whether it spares flows that are right only if the sync under way succeeds. */
  readonly isGuess: boolean;
  isStale(flow: UdpFlow): boolean;
  /** Whose flow it is, or was; `undefined` for one that is not looked at. */
  ownerOf(flow: UdpFlow): ServicePortKey | undefined;
}

/** Who may answer at each address that is looked at. */
export class FrontEndMatcher implements StaleFlowMatcher {
  readonly ports = new Set<Port>();
  isGuess = false;
  readonly #allowed = new Map<string, Set<string>>();
  readonly #allowedOnNodePort = new Map<Port, Set<string>>();
  readonly #owners = new Map<string, ServicePortKey>();
  readonly #nodePortOwners = new Map<Port, ServicePortKey>();
  readonly #nodeAddresses: ReadonlySet<IpAddress>;
  readonly #onDispose: () => void;

  constructor(
    nodeAddresses: readonly IpAddress[],
    { suspects, onDispose }: {
      readonly suspects: SuspectFrontEnds;
      readonly onDispose: () => void;
    },
  ) {
    this.#nodeAddresses = new Set(nodeAddresses);
    this.#onDispose = onDispose;
    for (const [address, { port, key }] of suspects.goneAddresses) {
      this.#allowed.set(address, new Set());
      this.#owners.set(address, key);
      this.ports.add(port);
    }
    for (const [nodePort, key] of suspects.goneNodePorts) this.#watchNodePort(nodePort, key);
  }

  /** Looks at the front ends of this ServicePort. */
  watch(plan: ServicePlan): void {
    for (const address of frontEndsOf(plan)) {
      this.#allowed.set(address, new Set());
      this.#owners.set(address, plan.key);
    }
    this.ports.add(plan.port);
    if (plan.nodePort !== undefined) this.#watchNodePort(plan.nodePort, plan.key);
  }

  /** As {@linkcode allow}, for a plan that may never come. */
  allowGuess(plan: ServicePlan): void {
    if (this.allow(plan)) this.isGuess = true;
  }

  /**
   * Lets the endpoints of this ServicePort answer at those of its front ends that are looked at.
   * Returns whether some might not before.
   */
  allow(plan: ServicePlan): boolean {
    if (!this.ports.has(plan.port) && !this.ports.has(plan.nodePort ?? plan.port)) return false;
    const answering = answeringOf(plan);
    const sets = frontEndsOf(plan).map((address) => this.#allowed.get(address));
    if (plan.nodePort !== undefined) sets.push(this.#allowedOnNodePort.get(plan.nodePort));
    let isNew = false;
    for (const set of sets) {
      for (const { key } of answering) {
        isNew ||= set?.has(key) === false;
        set?.add(key);
      }
    }
    return isNew;
  }

  isStale(flow: UdpFlow): boolean {
    const allowed = this.#allowed.get(formatHostPort(flow.destination, flow.destinationPort)) ??
      (this.#nodeAddresses.has(flow.destination)
        ? this.#allowedOnNodePort.get(flow.destinationPort)
        : undefined);
    return allowed?.has(formatHostPort(flow.replySource, flow.replySourcePort)) === false;
  }

  ownerOf({ destination, destinationPort }: UdpFlow): ServicePortKey | undefined {
    return this.#owners.get(formatHostPort(destination, destinationPort)) ??
      this.#nodePortOwners.get(destinationPort);
  }

  [Symbol.dispose](): void {
    this.#onDispose();
  }

  #watchNodePort(nodePort: Port, key: ServicePortKey): void {
    this.#nodePortOwners.set(nodePort, key);
    this.#allowedOnNodePort.set(nodePort, new Set());
    this.ports.add(nodePort);
  }
}

/** `ip:port` of each address of a ServicePort, but for its node port. */
export function frontEndsOf(plan: ServicePlan): string[] {
  return [plan.clusterIp, ...plan.loadBalancerVips, ...plan.externalIps]
    .map((address) => formatHostPort(address, plan.port));
}

/**
 * Endpoints that may keep their flows: also one that is ending and still answers, one that policy or
 * topology would not choose for a new flow, and one that is published though it is not ready
 * (`publishNotReadyAddresses`: ready and not serving).
 */
export function answeringOf({ endpoints }: ServicePlan): readonly Endpoint[] {
  return endpoints.filter(({ ready, serving }) => ready || serving);
}
