/**
 * A running proxy and its machine, looked at while nothing changes: what is under way is no difference.
 *
 * @module
 */
import type { LoadedConfiguration } from "../../config/load.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import { requestStatus } from "../control_client.ts";
import { planRunningNode } from "../plan_running_node.ts";
import type { PlannedNode, PlanNodeDependencies } from "../planned_node.ts";
import { countDifferences, type NodeDifference } from "./node_difference.ts";
import { ReadingsAhead } from "./readings_ahead.ts";
import { withServing } from "./serving_node.ts";

/** Whom to ask, and what about. */
export interface SettledNodeOptions {
  readonly relay: LoadedConfiguration["relay"];
  readonly families: readonly IpFamily[];
  readonly signal: AbortSignal;
  /** Compares, or mends. */
  readonly look: (planned: PlannedNode, readings: ReadingsAhead) => Promise<NodeDifference>;
  /** Whether looking may have written something: then the plan must not have changed meanwhile. */
  readonly writes: boolean;
}

/** What was found last. */
export interface SettledLook {
  readonly planned: PlannedNode;
  readonly difference: NodeDifference;
  /** Whether the process went on changing things, so that some of it may have been under way. */
  readonly isUnsettled: boolean;
}

const MAX_LOOKS = 3;
/** A sync that changes a few Services takes less. */
const PAUSE_MS = 150;

/**
 * Plans what the process wants and looks at the machine; again, at most three times, when the process
 * synced meanwhile. Asks the process only what changes nothing in it.
 */
export async function lookSettled(
  dependencies: PlanNodeDependencies,
  { relay, families, signal, look, writes }: SettledNodeOptions,
): Promise<SettledLook> {
  const { clock } = dependencies;
  let earlier: NodeDifference | undefined;
  for (let looks = 1;; looks++) {
    const { state: before, mode } = await syncState(relay);
    await using readings = new ReadingsAhead();
    const planned = await planRunningNode(dependencies, {
      relay,
      families,
      // The machine is read after the plan is settled, and while it comes and is made. Who is going to
      // write reads it as late as can be.
      ...(mode && !writes && {
        onSettled: () => readings.begin(dependencies, { mode, families, relay }),
      }),
    });
    const difference = withEarlierRepairs(
      await look(await withServing(planned, relay), readings),
      earlier,
    );
    earlier = difference;
    const isClean = !writes && countDifferences(difference) === 0;
    if (!isClean) await clock.sleep(PAUSE_MS, signal);
    const isSettled = isClean || deepEqual(before, (await syncState(relay)).state);
    if (isSettled || looks === MAX_LOOKS) return { planned, difference, isUnsettled: !isSettled };
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

/** What changes with each sync, and before one; and the mode, if there is a family. */
async function syncState(
  { controlSocket }: LoadedConfiguration["relay"],
): Promise<{ readonly state: unknown; readonly mode: BackendMode | undefined }> {
  const { families, phase } = await requestStatus(controlSocket, { brief: true });
  if (phase !== "serving" && !families.every(({ lastSync }) => lastSync !== undefined)) {
    throw new Error(
      `Cannot compare this machine with what kube-relay wants: it is '${phase}' and has not synced ` +
        "yet; ask again when 'kube-relay status' says serving",
    );
  }
  return {
    state: families.map(({ lastSync, pending }) => ({ at: lastSync?.at, pending })),
    mode: families[0]?.mode,
  };
}
