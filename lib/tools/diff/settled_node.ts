import type { LoadedConfiguration } from "../../config/load.ts";
import type { Clock } from "../../os/clock.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import { requestStatus } from "../control/control_client.ts";
import { countDifferences, type NodeDifference } from "./node_difference.ts";

interface SettledNodeOptions {
  readonly relay: Pick<LoadedConfiguration["relay"], "controlSocket">;
  readonly signal?: AbortSignal;
  /** Compares or repairs. */
  readonly look: () => Promise<NodeDifference>;
  /** Whether `look` repairs; then the plan must not change meanwhile. */
  readonly writes: boolean;
}

export interface SettledLook {
  readonly difference: NodeDifference;
  /** Whether syncs went on, so that some differences may be unfinished changes. */
  readonly isUnsettled: boolean;
}

const MAX_LOOKS = 3;
/** A sync of a few Services takes less. */
const PAUSE_MS = 150;

/** Compares until the running process does not sync meanwhile, at most three times. */
export async function lookSettled(
  { clock }: { readonly clock: Clock },
  { relay, signal, look, writes }: SettledNodeOptions,
): Promise<SettledLook> {
  let earlier: NodeDifference | undefined;
  for (let looks = 1;; looks++) {
    const before = await syncState(relay);
    const difference = withEarlierRepairs(await look(), earlier);
    earlier = difference;
    const isClean = !writes && countDifferences(difference) === 0;
    if (!isClean) await clock.sleep(PAUSE_MS, signal);
    const isSettled = isClean || deepEqual(before, await syncState(relay));
    if (isSettled || looks === MAX_LOOKS) return { difference, isUnsettled: !isSettled };
  }
}

/** Adds the repairs of earlier looks. */
function withEarlierRepairs(
  difference: NodeDifference,
  earlier: NodeDifference | undefined,
): NodeDifference {
  const families = difference.families.map((family) => {
    const before = earlier?.families.find((other) =>
      other.family === family.family && other.controller === family.controller
    )?.repair;
    if (before === undefined || family.repair === undefined) return family;
    const { left, operations } = family.repair;
    const known = new Set(left.map(({ object, name }) => `${object} ${name}`));
    const repaired = before.found.filter(({ object, name }) => !known.has(`${object} ${name}`));
    return {
      ...family,
      repair: { found: [...repaired, ...family.repair.found], left, operations },
    };
  });
  return { ...difference, families };
}

/** A value that changes with and before each sync. */
async function syncState({ controlSocket }: SettledNodeOptions["relay"]): Promise<unknown> {
  const { families, controllers = [], phase } = await requestStatus(controlSocket, { brief: true });
  const loops = [...families, ...controllers.flatMap((controller) => controller.families)];
  if (phase !== "serving" && !families.every(({ lastSync }) => lastSync !== undefined)) {
    throw new Error(
      `Cannot compare this machine with the plan: kube-relay is '${phase}' and has not synced yet; ` +
        "ask again when 'kube-relay status' says serving",
    );
  }
  return loops.map(({ lastSync, pending }) => ({ at: lastSync?.at, pending }));
}
