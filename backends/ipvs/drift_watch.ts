import type { Logger } from "../../lib/log/logger.ts";
import type { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import type { DriftFigures, RuleWatch } from "../netfilter/rule_plane.ts";
import type { IpvsRunner } from "./ipvs_runner.ts";
import type { SeenServer } from "../netfilter/virtual_servers.ts";
import type { IpvsTarget } from "./target.ts";

interface ServerWatchDependencies {
  readonly logger: Logger;
  readonly runner: Pick<IpvsRunner, "deviceAddresses" | "servers">;
  readonly iptables: Pick<IptablesRunner, "hasRules">;
  readonly target: IpvsTarget;
  /** The state of the kernel is unknown from now on. */
  readonly forget: () => void;
}

/** While connections are waited for. */
const DRAIN_LOOK_MS = 5_000;
const LONGEST_PAUSE_MS = 30_000;
const SHORTEST_PAUSE_MS = 1_000;

/** What the metrics count objects as; entries of sets have the name of their set as kind. */
const KINDS: Readonly<Record<string, DriftFigures["kind"]>> = {
  ...{ chain: "rule", jump: "rule", rule: "rule" },
  ...{ server: "virtual_server", real: "virtual_server" },
  ...{ device: "address", address: "address" },
};

/**
 * The watch of one family. Sets and single rules are only seen by reading everything. `periodMs`:
 * longest time between two looks, under 30 s.
 */
export function serverWatch(
  { logger, runner, iptables, target, forget }: ServerWatchDependencies,
  { periodMs }: { readonly periodMs: number },
): RuleWatch {
  /** Describes what is missing; `undefined` = nothing. */
  const lost = async (seen: readonly SeenServer[]) => {
    const there = new Set(seen.map(({ key }) => key));
    for (const key of target.servers.keys()) if (!there.has(key)) return `virtual server ${key}`;
    const addresses = await runner.deviceAddresses();
    if (addresses === undefined) return "the device";
    // The other IP family may have made it again, without the addresses of this one.
    for (const address of target.addresses) {
      if (!addresses.has(address)) return `address ${address}`;
    }
    return await iptables.hasRules("nat", "KUBE-SERVICES") ? undefined : "rules of table nat";
  };
  return {
    texts: {
      lost: "Another program removed objects of kube-relay; repairing",
      changed: "Another program removed or changed objects of kube-relay; repairing",
      failed: "Cannot check the virtual servers; trying again",
    },
    get pauseMs() {
      const longest = target.drains.size > 0 ? DRAIN_LOOK_MS : LONGEST_PAUSE_MS;
      return Math.max(Math.min(periodMs, longest), SHORTEST_PAUSE_MS);
    },
    async look() {
      const seen = await runner.servers(target.servers.keys());
      try {
        const drained = await target.removeDrained(seen);
        if (drained > 0) logger.verbose(2, "Removed drained real servers", { drained });
      } catch (error) {
        forget();
        throw error;
      }
      const what = await lost(seen);
      return what === undefined ? undefined : { lost: what };
    },
    found(changes) {
      const counts: Partial<Record<DriftFigures["kind"], number>> = {};
      for (const { kind } of changes) {
        const counted = KINDS[kind] ?? "set";
        counts[counted] = (counts[counted] ?? 0) + 1;
      }
      const { reads: _, processes: __, ...fields } = target.operations;
      return { counts, fields };
    },
  };
}
