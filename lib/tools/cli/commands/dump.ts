import { messageOf } from "../../../log/message_of.ts";
import { FileExistsError, writeFile } from "../../../os/write_file.ts";
import { askControlText, ControlError } from "../../control/control_client.ts";
import type { Dependencies } from "../../../app/dependencies.ts";
import { POLICY_KINDS } from "../../../app/policy/policy_settings.ts";
import { collectDump } from "../../dump/collect_dump.ts";
import { DUMP_KIND } from "../../../kube/manifests/manifest_objects.ts";
import { nodesOf, type PlannedNode } from "../../offline/planned_node.ts";
import { jsonPieces } from "../json_stream.ts";
import { type CommandContext, namesObjects } from "./command.ts";
import { planNamedObjects } from "./plan_named_objects.ts";

/** Means standard output. */
const STANDARD_OUTPUT = "-";

/**
 * Writes the dump of the running process, or with `--manifests` or a kubeconfig that of a new plan. Exits
 * with status 1 if some of those objects could not be used.
 */
export async function dumpVerb(
  dependencies: Dependencies,
  context: CommandContext,
): Promise<number> {
  const [path = STANDARD_OUTPUT] = context.operands ?? [];
  const { flags, configuration: { relay: { controlSocket } } } = context;
  let pieces: Iterable<string> | AsyncIterable<string>;
  let isIncomplete = false;
  if (namesObjects(flags)) {
    const planned = await planNamedObjects(dependencies, context);
    pieces = jsonPieces(dumpPlan(dependencies, planned), dependencies);
    ({ isIncomplete } = planned);
  } else {
    const text = await askControlText(controlSocket, "/dump");
    if (!text.startsWith(`{"kind":"${DUMP_KIND}"`)) {
      throw new ControlError(
        `Cannot dump kube-relay at '${controlSocket}': the answer is no dump`,
      );
    }
    pieces = [text, "\n"];
  }
  if (path === STANDARD_OUTPUT) {
    for await (const piece of pieces) dependencies.print(piece);
    return isIncomplete ? 1 : 0;
  }
  const signal = context.endInOrder();
  // An interrupted dump leaves no file behind.
  async function* untilAborted(): AsyncIterable<string> {
    for await (const piece of pieces) {
      signal.throwIfAborted();
      yield piece;
    }
  }
  try {
    await writeFile(path, "new", untilAborted());
  } catch (error) {
    signal.throwIfAborted();
    const cure = error instanceof FileExistsError ? "; remove it, or name another file" : "";
    throw new Error(`Cannot write the dump to '${path}': ${messageOf(error)}${cure}`, {
      cause: error,
    });
  }
  dependencies.print(
    `Dump written to ${path}; status, explain, diff and render read it with --from\n`,
  );
  return isIncomplete ? 1 : 0;
}

/** Dumps named objects and their plan, without a running process. */
function dumpPlan(
  { clock, process: { kernelRelease } }: Dependencies,
  planned: PlannedNode,
): unknown {
  const families = [...planned.plans.keys()];
  const { informers, configuration: { proxy: { networkPolicy } } } = planned;
  const tool = networkPolicy.mode === "iptables" ? "iptables" : "nftables";
  return collectDump({ clock, kernelRelease }, {
    ...planned,
    families: families.map((family) => ({ family, quarantined: [] })),
    ...(networkPolicy.enabled && {
      policyKinds: new Map(POLICY_KINDS.map((spec) => [spec, informers])),
      controllers: { "network-policy": { tool, families, nodes: [...nodesOf(informers)] } },
    }),
  });
}
