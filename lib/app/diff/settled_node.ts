import type { LoadedConfiguration } from "../../config/load.ts";
import type { Clock } from "../../os/clock.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import { requestStatus } from "../control/control_client.ts";
import { countDifferences, type NodeDifference } from "./node_difference.ts";

/** Whom to ask, and what about. */
interface SettledNodeOptions {
  readonly relay: Pick<LoadedConfiguration["relay"], "controlSocket">;
  readonly signal?: AbortSignal;
  /** Compares, or mends. */
  readonly look: () => Promise<NodeDifference>;
  /** Whether looking may have written something: then the plan must not have changed meanwhile. */
  readonly writes: boolean;
}

/** What was found last. */
export interface SettledLook {
  readonly difference: NodeDifference;
  /** Whether the process went on changing things, so that some of it may have been under way. */
  readonly isUnsettled: boolean;
}

const MAX_LOOKS = 3;
/** A sync that changes a few Services takes less. */
const PAUSE_MS = 150;

/**
 * Looks at a machine beside what the process there wants; again, at most three times, when the process
 * synced meanwhile.
 */
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

/** What was mended by an earlier look is to be told as well. */
function withEarlierRepairs(
  difference: NodeDifference,
  earlier: NodeDifference | undefined,
): NodeDifference {
  const families = difference.families.map((family) => {
    const before = earlier?.families.find((other) => other.family === family.family)?.repair;
    if (before === undefined || family.repair === undefined) return family;
    const { left, operations } = family.repair;
    const known = new Set(left.map(({ object, name }) => `${object} ${name}`));
    const mended = before.found.filter(({ object, name }) => !known.has(`${object} ${name}`));
    return { ...family, repair: { found: [...mended, ...family.repair.found], left, operations } };
  });
  return { ...difference, families };
}

/** What changes with each sync, and before one. */
async function syncState({ controlSocket }: SettledNodeOptions["relay"]): Promise<unknown> {
  const { families, phase } = await requestStatus(controlSocket, { brief: true });
  if (phase !== "serving" && !families.every(({ lastSync }) => lastSync !== undefined)) {
    throw new Error(
      `Cannot compare this machine with what kube-relay wants: it is '${phase}' and has not synced ` +
        "yet; ask again when 'kube-relay status' says serving",
    );
  }
  return families.map(({ lastSync, pending }) => ({ at: lastSync?.at, pending }));
}
