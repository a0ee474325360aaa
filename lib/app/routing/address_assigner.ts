/**
 * Assigns addresses to Services while this process is the only one in the cluster that does.
 *
 * @module
 */
import type { Namespace } from "../../api/kinds/namespace.ts";
import type { RoutedService } from "../../api/kinds/routed_service.ts";
import type { EventSink } from "../../kube/event.ts";
import type { Informer } from "../../kube/informer.ts";
import type { Logger } from "../../log/logger.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import { forEachInSlices, runInSlices } from "../../os/time_slice.ts";
import { namespacedNameOf, type ServiceKey, serviceKey } from "../../proxy/service_port_name.ts";
import { AddressAllocator, type AddressAssignment } from "../../routing/address_allocator.ts";
import { addressRequestOf } from "../../routing/address_request.ts";
import type { RoutingSettings } from "../../routing/routing_settings.ts";
import { AssignmentEvents } from "./assignment_events.ts";
import { type StatusClient, StatusWriter, type WriteOutcome } from "./status_writer.ts";

/** The dependencies of {@linkcode AddressAssigner}. */
interface AddressAssignerDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly random: () => number;
  readonly events: EventSink;
}

/** Its settings, and the objects that it assigns by. */
interface AddressAssignerOptions {
  readonly settings: Pick<
    RoutingSettings,
    "pools" | "loadBalancerClass" | "defaultLoadBalancerClass"
  >;
  readonly services: Pick<Informer<RoutedService>, "get" | "values">;
  /** Absent if no pool selects namespaces. */
  readonly namespaces?: Pick<Informer<Namespace>, "get" | "values"> | undefined;
  /** Called after each write. Must not throw. */
  readonly onWritten?: (outcome: WriteOutcome) => void;
}

/** The last writes of a former leader arrive within this time. */
const SETTLE_MS = 1_000;

/** Assigns addresses and has them written, from {@linkcode lead} to the end of its signal. */
export class AddressAssigner {
  readonly #clock: Clock;
  readonly #dependencies: AddressAssignerDependencies;
  readonly #options: AddressAssignerOptions;
  /** Changes that wait: assignments must not change while they are made. */
  readonly #changed = new Set<ServiceKey>();
  readonly #namespaces = new Set<string>();
  #reserved: ReadonlyMap<IpAddress, string> = new Map();
  #isReservedChanged = true;
  #wake = Promise.withResolvers<void>();
  /** Absent while another process assigns. */
  #allocator: AddressAllocator | undefined;
  #writer: StatusWriter | undefined;

  constructor(dependencies: AddressAssignerDependencies, options: AddressAssignerOptions) {
    this.#dependencies = dependencies;
    this.#clock = dependencies.clock;
    this.#options = options;
  }

  /** Why the last write failed; `undefined` if it did not. */
  get problem(): string | undefined {
    return this.#writer?.problem;
  }

  /** What a Service gets; `undefined` if another process assigns, or it concerns none. */
  assignment(key: ServiceKey): AddressAssignment | undefined {
    return this.#allocator?.assignment(key);
  }

  /** Takes a Service that changed or is gone. */
  onService(service: RoutedService): void {
    if (!this.#allocator) return;
    this.#changed.add(serviceKey(namespacedNameOf(service)));
    this.#wake.resolve();
  }

  /** Takes a Namespace that changed or is gone. */
  onNamespace({ metadata: { name } }: Namespace): void {
    if (!this.#allocator) return;
    this.#namespaces.add(name);
    this.#wake.resolve();
  }

  /** Takes the addresses of nodes, which are never assigned, each with its user in words. */
  setReserved(reserved: ReadonlyMap<IpAddress, string>): void {
    this.#reserved = reserved;
    this.#isReservedChanged = true;
    this.#wake.resolve();
  }

  /**
   * Assigns until the signal is aborted; resolves then. The status of Services is the only memory, so a
   * new leader begins with what it has.
   */
  async lead(client: StatusClient, signal: AbortSignal): Promise<void> {
    const { settings, services, namespaces, onWritten } = this.#options;
    const wake = () => this.#wake.resolve();
    signal.addEventListener("abort", wake, { once: true });
    const allocator = this.#allocator = new AddressAllocator(settings.pools);
    const writer = this.#writer = new StatusWriter(this.#dependencies, {
      ...{ client, signal, services, settings, onWritten },
      wanted: (key) => allocator.assignment(key)?.addresses,
    });
    const events = new AssignmentEvents(this.#dependencies.events);
    try {
      await this.#clock.sleep(SETTLE_MS, signal).catch(() => {});
      for (const service of services.values()) this.onService(service);
      for (const namespace of namespaces?.values() ?? []) this.onNamespace(namespace);
      this.#isReservedChanged = true;
      while (!signal.aborted) {
        this.#wake = Promise.withResolvers();
        await this.#assign(allocator, { writer, events });
        await this.#wake.promise;
      }
    } finally {
      signal.removeEventListener("abort", wake);
      this.#allocator = undefined;
      this.#writer = undefined;
      this.#changed.clear();
      this.#namespaces.clear();
      await writer.ended();
    }
  }

  async #assign(
    allocator: AddressAllocator,
    { writer, events }: { readonly writer: StatusWriter; readonly events: AssignmentEvents },
  ): Promise<void> {
    const { settings, services, namespaces } = this.#options;
    for (const name of this.#namespaces) {
      const namespace = namespaces?.get(name);
      allocator.setNamespace(name, namespace && (namespace.metadata.labels ?? {}));
    }
    this.#namespaces.clear();
    if (this.#isReservedChanged) allocator.setReserved(this.#reserved);
    this.#isReservedChanged = false;
    await forEachInSlices(this.#clock, this.#changed, (key) => {
      this.#changed.delete(key);
      const service = services.get(key);
      allocator.setService(key, service && addressRequestOf(service, settings));
    });
    const changed = await runInSlices(this.#clock, allocator.updateInSteps());
    await forEachInSlices(this.#clock, changed, (key) => {
      events.report(key, { service: services.get(key), assignment: allocator.assignment(key) });
      writer.add(key);
    });
  }
}
