/**
 * First packets: how long a connection takes to be made, among few Services and among many.
 *
 * @module
 */
import type { BenchNamespace } from "./bench_namespace.ts";
import { benchClusterIp } from "./bench_services.ts";
import { spreadOf } from "./statistics.ts";

/** Median microseconds of connections among this number of Services, by destination. */
export interface ConnectFigures {
  readonly services: number;
  readonly medians: Readonly<Record<string, number>>;
}

/** A namespace, and how many Services are in it. */
export interface ConnectPlace {
  readonly namespace: BenchNamespace;
  readonly services: number;
}

/** Connections to each address before another namespace takes its turn. */
const ROUNDS = 20;
/** An endpoint, asked past all Services. */
export const DIRECT_ADDRESS = "10.5.5.5";

/** Takes turns between the namespaces: what else happens on the machine hits all of them alike. */
export async function measureConnects(
  places: readonly ConnectPlace[],
  turns: number,
): Promise<readonly ConnectFigures[]> {
  const taken = places.map(({ namespace, services }) => ({
    namespace,
    services,
    addresses: {
      first: benchClusterIp(0),
      middle: benchClusterIp(services >> 1),
      last: benchClusterIp(services - 1),
      "no Service": DIRECT_ADDRESS,
    },
    times: new Map<string, number[]>(),
  }));
  for (let turn = 0; turn < turns; turn++) {
    for (const { namespace, addresses, times } of taken) {
      const found = await namespace.connect(Object.values(addresses), ROUNDS);
      // The first ones bring caches back that another namespace used meanwhile.
      for (const [name, address] of Object.entries(addresses)) {
        times.set(name, [...times.get(name) ?? [], ...(found[address] ?? []).slice(2)]);
      }
    }
  }
  return taken.map(({ services, times }) => ({
    services,
    medians: Object.fromEntries(
      [...times].map(([name, values]) => [name, spreadOf(values).median]),
    ),
  }));
}
