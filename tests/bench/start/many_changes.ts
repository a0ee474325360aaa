/** Memory over many changes of endpoints. */
import { eventually } from "../../support/eventually.ts";
import type { ApiMachinery } from "../../support/stages/api_machinery.ts";
import { isSettled } from "../../support/stages/relay_process.ts";
import type { BenchRelay } from "../bench_relay.ts";
import { benchObjects } from "../bench_services.ts";
import { residentMiB } from "../process_usage.ts";
import type { Gate } from "../gates.ts";

/** Changes between two looks at the memory. */
export const CHANGES_PER_LOOK = 2_000;
/** Most that memory grows from the first half of the changes to the second one. */
const MOST_GROWTH = 1.1;
/** An odd factor visits all Services before one is changed again. */
const STRIDE = 997;

/**
 * Gives Services other endpoints. Returns the resident memory in MiB before, and after each
 * {@linkcode CHANGES_PER_LOOK} of the changes.
 */
export async function memoryOverChanges(
  machinery: ApiMachinery,
  { relay, services, changes }: {
    readonly relay: BenchRelay;
    readonly services: number;
    readonly changes: number;
  },
): Promise<readonly number[]> {
  const memory = [(await residentMiB(relay.pid)).now];
  for (let made = 0; made < changes; made += CHANGES_PER_LOOK) {
    const count = Math.min(CHANGES_PER_LOOK, changes - made);
    await machinery.admin.updateAll(Array.from({ length: count }, (_, index) => {
      const change = made + index;
      const version = 2 + Math.floor(change / services) + change % 50;
      return benchObjects((change * STRIDE) % services, [version, version + 60])[1];
    }));
    const writtenAt = Date.now();
    await eventually("the changes are synced", async () => {
      const sync = await relay.lastSync();
      return sync !== undefined && Date.parse(sync.at) >= writtenAt &&
        isSettled(await relay.status());
    }, { deadlineMs: 240_000 });
    memory.push((await residentMiB(relay.pid)).now);
  }
  return memory;
}

/** Compares the largest figures of both halves: one figure depends on the last garbage collection. */
export function growthGate(name: string, memory: readonly number[]): Gate {
  const middle = Math.ceil(memory.length / 2);
  const growth = Math.max(...memory.slice(middle)) / Math.max(...memory.slice(1, middle));
  return { name, value: growth, atMost: MOST_GROWTH, slack: 0 };
}
