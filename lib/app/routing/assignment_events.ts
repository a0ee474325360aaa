import type { RoutedService } from "../../api/kinds/routed_service.ts";
import type { EventSink, KubeEvent } from "../../kube/event.ts";
import type { ServiceKey } from "../../proxy/service_port_name.ts";
import type { AddressAssignment } from "../../routing/address_allocator.ts";

/** A Service and its assignment; either may be absent. */
interface ReportedAssignment {
  readonly service: RoutedService | undefined;
  readonly assignment: AddressAssignment | undefined;
}

/** Reports on Services which addresses they got, or why they got none. Repeats nothing. */
export class AssignmentEvents {
  readonly #events: EventSink;
  /** The last refusals of each Service that has some, as one text. */
  readonly #refused = new Map<ServiceKey, string>();
  /** The addresses that each Service got last, or had in its status when it was seen first. */
  readonly #assigned = new Map<ServiceKey, ReadonlySet<string>>();

  constructor(events: EventSink) {
    this.#events = events;
  }

  /** Takes an assignment that may have changed. */
  report(key: ServiceKey, { service, assignment }: ReportedAssignment): void {
    const messages = assignment?.refusals.map(({ message }) => message) ?? [];
    const text = messages.join("\n");
    const isNews = (this.#refused.get(key) ?? "") !== text;
    if (text === "") this.#refused.delete(key);
    else this.#refused.set(key, text);
    if (!service || !assignment?.addresses) this.#assigned.delete(key);
    if (!service) return;
    if (isNews) {
      for (const { kind, message: note } of assignment?.refusals ?? []) {
        const isExhausted = kind === "exhausted";
        this.#record(service, {
          type: "Warning",
          reason: isExhausted ? "LoadBalancerPoolExhausted" : "LoadBalancerAddressRefused",
          note,
        });
      }
    }
    const ingress = service.status?.loadBalancer?.ingress ?? [];
    const addresses = assignment?.addresses;
    if (!addresses) return;
    // A status that cannot be written, or that another program clears, is no new assignment.
    const known = this.#assigned.get(key) ?? new Set(ingress.flatMap(({ ip }) => ip ?? []));
    this.#assigned.set(key, new Set(addresses));
    const added = addresses.filter((address) => !known.has(address));
    if (added.length === 0) return;
    const note = `Assigned ${added.join(", ")}`;
    this.#record(service, { type: "Normal", reason: "LoadBalancerAddressAssigned", note });
  }

  #record(
    { metadata: { name, namespace = "default", uid } }: RoutedService,
    event: Pick<KubeEvent, "type" | "reason" | "note">,
  ): void {
    const regarding = { apiVersion: "v1", kind: "Service", name, namespace };
    this.#events.record({
      ...event,
      action: "AssignLoadBalancerAddress",
      regarding: { ...regarding, ...(uid !== undefined && { uid }) },
    });
  }
}
