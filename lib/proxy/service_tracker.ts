import type { Service } from "../api/kinds/service.ts";
import type { ObjectProblem } from "../api/problem.ts";
import { tryParseProtocol } from "../net/port.ts";
import { deepEqual } from "./deep_equal.ts";
import {
  type ServicePort,
  type ServicePortOptions,
  servicePortsFromService,
} from "./service_port.ts";
import {
  namespacedNameOf,
  type ServiceKey,
  serviceKey,
  type ServicePortKey,
  servicePortKey,
} from "./service_port_name.ts";

/** The ServicePorts of one IP family. Changes wait for the next {@linkcode drain}. */
export class ServiceTracker {
  readonly #options: ServicePortOptions;
  readonly #ports = new Map<ServicePortKey, ServicePort>();
  /** What differs from the drained ServicePorts, by Service; `undefined` = the port is gone. */
  readonly #changes = new Map<ServiceKey, Map<ServicePortKey, ServicePort | undefined>>();
  /** The problems of each Service that has some, in words, so that an update reports only others. */
  readonly #known = new Map<ServiceKey, string>();
  readonly #problems = new Map<ServiceKey, readonly ObjectProblem[]>();
  #total = 0;

  constructor(options: ServicePortOptions) {
    this.#options = options;
  }

  /** As of the last drain. Equal ServicePorts keep their identity. */
  get ports(): ReadonlyMap<ServicePortKey, ServicePort> {
    return this.#ports;
  }

  /** Number of Services that changed since the last drain. */
  get pending(): number {
    return this.#changes.size;
  }

  /** Number of updates since the start, including those without effect. */
  get total(): number {
    return this.#total;
  }

  /**
   * Applies the change of one Service; either side may be absent. A Service that returns to its
   * drained state is not changed. Returns whether a sync has work to do, for this Service or another.
   */
  update(previous: Service | undefined, current: Service | undefined): boolean {
    const service = current ?? previous;
    if (service === undefined) return false;
    this.#total++;
    const name = namespacedNameOf(service);
    const key = serviceKey(name);
    const { ports, problems } = current === undefined
      ? { ports: [], problems: [] }
      : servicePortsFromService(current, this.#options);
    const changes = this.#changes.get(key) ?? new Map<ServicePortKey, ServicePort | undefined>();
    for (const { name: port = "", protocol: text } of previous?.spec.ports ?? []) {
      const protocol = tryParseProtocol(text);
      if (protocol) changes.set(servicePortKey({ ...name, port, protocol }), undefined);
    }
    for (const port of ports) changes.set(port.key, port);
    for (const [changed, port] of changes) {
      if (deepEqual(this.#ports.get(changed), port)) changes.delete(changed);
    }
    if (changes.size > 0) this.#changes.set(key, changes);
    else this.#changes.delete(key);
    this.#note(key, problems);
    return this.#changes.size > 0 || this.#problems.size > 0;
  }

  /** Applies the changes of at most this many Services. Returns the ServicePorts that changed. */
  drain(limit = Infinity): {
    readonly keys: readonly ServicePortKey[];
    readonly problems: readonly ObjectProblem[];
  } {
    const keys: ServicePortKey[] = [];
    for (const [service, changes] of this.#changes.entries().take(limit)) {
      this.#changes.delete(service);
      for (const [key, port] of changes) {
        if (port === undefined) this.#ports.delete(key);
        else this.#ports.set(key, port);
        keys.push(key);
      }
    }
    const problems = [...this.#problems.values()].flat();
    this.#problems.clear();
    return { keys, problems };
  }

  #note(key: ServiceKey, problems: readonly ObjectProblem[]): void {
    const text = problems.length === 0 ? "" : JSON.stringify(problems);
    if (text === (this.#known.get(key) ?? "")) return;
    if (text === "") {
      this.#known.delete(key);
      this.#problems.delete(key);
    } else {
      this.#known.set(key, text);
      this.#problems.set(key, problems);
    }
  }
}
