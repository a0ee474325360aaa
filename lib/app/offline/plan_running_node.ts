import type { LoadedConfiguration } from "../../config/load.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip_address.ts";
import { askControl } from "../control/control_client.ts";
import { INPUT_PART } from "../dump/dump_schema.ts";
import { planDump } from "../dump/plan_dump.ts";
import { checkDump } from "../dump/read_dump.ts";
import type { PlannedNode, PlanNodeDependencies } from "./plan_objects.ts";

/** Whom to ask. */
interface PlanRunningNodeOptions {
  /** Of this the control socket, and paths that decide nothing. */
  readonly relay: LoadedConfiguration["relay"];
  /** @default {both} */
  readonly families?: readonly IpFamily[];
}

/**
 * Asks the process behind the control socket for its dump, and plans it: its objects, its
 * configuration, and what it found of the machine. Throws a ControlError where it can't be asked.
 */
export async function planRunningNode(
  dependencies: PlanNodeDependencies,
  { relay, families = IP_FAMILIES }: PlanRunningNodeOptions,
): Promise<PlannedNode> {
  const { controlSocket } = relay;
  const source = `the dump of kube-relay at '${controlSocket}'`;
  const answer = await askControl(controlSocket, { route: "/dump?inputs" });
  const dump = checkDump(answer, { source, part: INPUT_PART });
  return await planDump(dependencies, { dump, source, families, relay });
}
