import type { Clock } from "../../os/clock.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import { requestStatus } from "../control/control_client.ts";
import type { NodeDifference } from "./node_difference.ts";

const MAX_REPAIRS = 3;
/** A sync of a few Services takes less. */
const PAUSE_MS = 150;

/** Repairs until the running process does not sync meanwhile, at most three times. */
export async function repairSettled(
  { clock }: { readonly clock: Clock },
  controlSocket: string,
  signal: AbortSignal,
  repair: () => Promise<NodeDifference>,
): Promise<NodeDifference> {
  let earlier: NodeDifference | undefined;
  for (let repairs = 1;; repairs++) {
    const before = await syncState(controlSocket);
    const difference = withEarlierRepairs(await repair(), earlier);
    earlier = difference;
    await clock.sleep(PAUSE_MS, signal);
    if (deepEqual(before, await syncState(controlSocket))) return difference;
    if (repairs < MAX_REPAIRS) continue;
    const families = difference.families.map((each) => ({ ...each, isUnsettled: true as const }));
    return { ...difference, families };
  }
}

/** Adds what was repaired earlier. */
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
async function syncState(controlSocket: string): Promise<unknown> {
  const { families, controllers = [], phase } = await requestStatus(controlSocket, { brief: true });
  const loops = [...families, ...controllers.flatMap((controller) => controller.families)];
  if (phase !== "serving" && !families.every(({ lastSync }) => lastSync !== undefined)) {
    throw new Error(
      `Cannot repair: kube-relay is '${phase}' and has not synced yet; ask again when ` +
        "'kube-relay status' says serving",
    );
  }
  return loops.map(({ lastSync, pending }) => ({ at: lastSync?.at, pending }));
}
