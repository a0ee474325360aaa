import type { OpenFiles } from "../../../lib/os/open_files.ts";
import {
  type ServicePortKey,
  servicePortKey,
  type ServicePortName,
} from "../../../lib/proxy/service_port_name.ts";
import type { FamilyTraffic } from "../../../lib/proxy/service_traffic.ts";
import type { ServiceForwarder } from "../forwarders.ts";
import type { ForwardingCounters } from "../forwarding.ts";
import type { RelayedTraffic, WorkerReport } from "./worker_protocol.ts";

type Counts<Name extends string> = Partial<Record<Name, number>>;

interface TrafficRow {
  readonly name: ServicePortName;
  readonly traffic: RelayedTraffic;
  reported: Readonly<RelayedTraffic>;
}

const NO_TRAFFIC: Readonly<RelayedTraffic> = {
  ...{ bytesFromClients: 0, bytesToClients: 0, packetsFromClients: 0, packetsToClients: 0 },
  ...{ opened: 0, open: 0 },
};

/** The counts of a worker, and what of them the main thread does not know yet. */
export class WorkerFigures {
  /** `undefined` = Services are not counted one by one. */
  readonly traffic: FamilyTraffic | undefined;
  readonly #openFiles: OpenFiles;
  readonly #numberOf: (key: ServicePortKey) => number | undefined;
  readonly #rows = new Map<ServicePortKey, TrafficRow>();
  readonly #connections = new Map<number, number>();
  #reported: Partial<ForwardingCounters> = {};

  constructor({ openFiles, countsTraffic, numberOf }: {
    readonly openFiles: OpenFiles;
    readonly countsTraffic: boolean;
    /** The number of the forwarder of a ServicePort. */
    readonly numberOf: (key: ServicePortKey) => number | undefined;
  }) {
    this.#numberOf = numberOf;
    this.#openFiles = openFiles;
    if (!countsTraffic) return;
    this.traffic = {
      enter: (name) =>
        this.#rows.getOrInsertComputed(servicePortKey(name), () => ({
          ...{ name, traffic: { ...NO_TRAFFIC }, reported: NO_TRAFFIC },
        })).traffic,
      get: (name) => this.#rows.get(servicePortKey(name))?.traffic,
      leave: (name) => void this.#rows.delete(servicePortKey(name)),
    };
  }

  /** Returns the changes since the last report. */
  report(
    counters: Readonly<ForwardingCounters>,
    forwarders: ReadonlyMap<number, { readonly forwarder: ServiceForwarder }>,
  ): WorkerReport {
    const changed = changesOf<keyof ForwardingCounters>(counters, this.#reported);
    this.#reported = { ...counters };
    return {
      counters: changed,
      traffic: [...this.#rows].flatMap(([key, row]) => {
        const number = this.#numberOf(key);
        if (number === undefined) return [];
        const before = row.reported;
        row.reported = { ...row.traffic };
        const changes = changesOf<keyof RelayedTraffic>(row.traffic, before);
        const isChanged = Object.keys(changes).length > 0;
        return isChanged ? [[number, row.name, { ...NO_TRAFFIC, ...changes }] as const] : [];
      }),
      connections: [...forwarders].flatMap(([number, { forwarder: { connections } }]) => {
        if ((this.#connections.get(number) ?? 0) === connections) return [];
        this.#connections.set(number, connections);
        return [[number, connections] as const];
      }),
      refused: this.#openFiles.takeRefused(),
    };
  }

  /** A ServicePort was removed. */
  forget(forwarder: number, name: ServicePortName): void {
    this.#connections.delete(forwarder);
    this.traffic?.leave(name);
  }
}

function changesOf<Name extends string>(
  now: Readonly<Counts<Name>>,
  before: Readonly<Counts<Name>>,
): Counts<Name> {
  const changes: Counts<Name> = {};
  for (const name of Object.keys(now) as Name[]) {
    const change = (now[name] ?? 0) - (before[name] ?? 0);
    if (change !== 0) changes[name] = change;
  }
  return changes;
}
