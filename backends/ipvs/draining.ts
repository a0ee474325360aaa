import type { Clock } from "../../lib/os/clock.ts";
import type { AppliedServers } from "./applied_servers.ts";
import { DrainList } from "./drain_list.ts";
import type { IpvsRunner } from "./ipvs_runner.ts";
import type { SeenServer } from "./proc_ip_vs.ts";
import type { ServerRecordWriter } from "./server_record_writer.ts";
import type { ServerKey } from "./virtual_server.ts";
import type { WriteFigures } from "./steps.ts";

interface DrainingDependencies {
  readonly clock: Clock;
  readonly runner: IpvsRunner;
  readonly record: ServerRecordWriter;
  /** The applied servers; removed ones are deleted from it. */
  readonly servers: AppliedServers;
}

/** Removes real servers of weight 0 once their connections have ended, or their time is over. */
export class Draining {
  readonly #dependencies: DrainingDependencies;
  readonly #list: DrainList;

  constructor(
    dependencies: DrainingDependencies,
    { timeoutMs }: { readonly timeoutMs: number },
  ) {
    const { record } = dependencies;
    this.#dependencies = dependencies;
    this.#list = new DrainList({ timeoutMs, onChange: () => record.touch() });
    record.follow(() => this.#list.entries);
  }

  /** The number of draining real servers. */
  get size(): number {
    return this.#list.size;
  }

  /** The real servers of a virtual one are now as `servers` has them. */
  note(key: ServerKey): void {
    const { clock, record, servers } = this.#dependencies;
    const server = servers.get(key);
    if (server === undefined) return this.#list.remove(key);
    for (const [real, weight] of server.reals) {
      if (weight !== 0) this.#list.remove(key, real);
      else this.#list.add(key, { real, sinceMs: record.beganAt(key, real) ?? clock.now() });
    }
  }

  /**
   * Removes drained servers, based on the kernel's current state, and returns their number. After
   * an error the state of the kernel is unknown.
   */
  async take(seen: readonly SeenServer[], figures: WriteFigures): Promise<number> {
    const { clock, record, runner, servers } = this.#dependencies;
    record.checkClock();
    const operations = this.#list.due(seen, clock.now());
    if (operations.length === 0) return 0;
    const step = { tool: "ipvsadm", operations } as const;
    await runner.run(step);
    figures.add(step);
    for (const operation of operations) {
      if (operation.kind !== "deleteReal") continue;
      const { server: key, key: real } = operation;
      this.#list.remove(key, real);
      const server = servers.get(key);
      if (server === undefined) continue;
      const reals = new Map(server.reals);
      reals.delete(real);
      servers.confirm(key, { ...server, reals });
    }
    return operations.length;
  }
}
