import type { IpAddress } from "../net/ip_address.ts";
import { formatHostPort, type Port } from "../net/port.ts";
import type { Endpoint } from "./endpoint.ts";
import { frontendsOf } from "./frontend.ts";
import type { ServicePlan } from "./service_plan.ts";
import type { ServicePortKey } from "./service_port_name.ts";

/** The relevant fields of a tracked flow: its destination, and the address that answers. */
export interface TrackedFlow {
  readonly destination: IpAddress;
  readonly destinationPort: Port;
  /** The endpoint; the destination itself if no rule translated the flow. */
  readonly replySource: IpAddress;
  readonly replySourcePort: Port;
}

/** Frontends that may have stale flows. */
export interface SuspectFrontends {
  /** ServicePorts that exist. */
  readonly keys: ReadonlySet<ServicePortKey>;
  /** `ip:port` that a ServicePort gave up; and node ports given up, with their last ServicePort. */
  readonly goneAddresses: ReadonlyMap<string, GoneAddress>;
  readonly goneNodePorts: ReadonlyMap<Port, ServicePortKey>;
}

/** An address that was given up. */
export interface GoneAddress {
  readonly port: Port;
  /** The last ServicePort of the frontend. */
  readonly key: ServicePortKey;
}

/** Finds stale flows of suspects. Follows later changes until it is disposed of. */
export interface StaleFlowMatcher extends Disposable {
  /** Destination ports that a stale flow may have; empty = no flow can be stale. */
  readonly ports: ReadonlySet<Port>;
  /** Whether it spares flows that are valid only if the current sync succeeds. */
  readonly isGuess: boolean;
  isStale(flow: TrackedFlow): boolean;
  /** The ServicePort that has or had the flow; `undefined` for a flow of no suspect. */
  ownerOf(flow: TrackedFlow): ServicePortKey | undefined;
}

/** The endpoints that may answer at each suspect address. */
export class FrontendMatcher implements StaleFlowMatcher {
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
      readonly suspects: SuspectFrontends;
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

  /** Adds the frontends of this ServicePort to the suspects. */
  watch(plan: ServicePlan): void {
    for (const address of frontendTexts(plan)) {
      this.#allowed.set(address, new Set());
      this.#owners.set(address, plan.key);
    }
    this.ports.add(plan.port);
    if (plan.nodePort !== undefined) this.#watchNodePort(plan.nodePort, plan.key);
  }

  /** As {@linkcode allow}, for a plan that may never be applied. */
  allowGuess(plan: ServicePlan): void {
    if (this.allow(plan)) this.isGuess = true;
  }

  /**
   * Allows the endpoints of this ServicePort to answer at its suspect frontends. Returns whether
   * some were not allowed before.
   */
  allow(plan: ServicePlan): boolean {
    if (!this.ports.has(plan.port) && !this.ports.has(plan.nodePort ?? plan.port)) return false;
    const answering = answeringOf(plan);
    const sets = frontendTexts(plan).map((address) => this.#allowed.get(address));
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

  isStale(flow: TrackedFlow): boolean {
    const allowed = this.#allowed.get(formatHostPort(flow.destination, flow.destinationPort)) ??
      (this.#nodeAddresses.has(flow.destination)
        ? this.#allowedOnNodePort.get(flow.destinationPort)
        : undefined);
    return allowed?.has(formatHostPort(flow.replySource, flow.replySourcePort)) === false;
  }

  ownerOf({ destination, destinationPort }: TrackedFlow): ServicePortKey | undefined {
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

/** `ip:port` of each address of a ServicePort, without its node port. */
export function frontendTexts(plan: ServicePlan): string[] {
  return frontendsOf(plan).flatMap(({ address, port }) =>
    address === undefined ? [] : formatHostPort(address, port)
  );
}

/**
 * Endpoints that may keep their flows. Includes one that is terminating and still serves, one that
 * policy or topology would not choose for a new flow, and one that is published before it is ready
 * (`publishNotReadyAddresses`: ready and not serving).
 */
export function answeringOf({ endpoints }: ServicePlan): readonly Endpoint[] {
  return endpoints.filter(({ ready, serving }) => ready || serving);
}
