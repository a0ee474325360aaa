import type { ProgramDependencies } from "../../../app/run/run_tools.ts";
import { messageOf } from "../../../log/message_of.ts";
import { FileExistsError, writeFile } from "../../../os/write_file.ts";
import { askControlText, ControlError } from "../../control/control_client.ts";
import type { Dependencies } from "../../../app/dependencies.ts";
import { POLICY_KINDS } from "../../../app/policy/policy_settings.ts";
import { collectDump } from "../../dump/collect_dump.ts";
import { DUMP_KIND } from "../../../kube/manifests/manifest_objects.ts";
import { jsonPieces } from "../json_stream.ts";
import { type CommandContext, namesObjects, planNamedObjects } from "./command.ts";

/** Means standard output. */
const STANDARD_OUTPUT = "-";

interface FinishedDump {
  readonly pieces: Iterable<string> | AsyncIterable<string>;
  /** Whether objects were left out. */
  readonly isIncomplete: boolean;
}

/**
 * Writes the dump of the running process, or with `--manifests` or a kubeconfig that of a new plan. Exits
 * with status 1 if some of those objects could not be used.
 */
export async function dumpVerb(
  dependencies: ProgramDependencies,
  context: CommandContext,
): Promise<number> {
  const [path = STANDARD_OUTPUT] = context.operands ?? [];
  const { pieces, isIncomplete } = await makeDump(dependencies, context);
  if (path === STANDARD_OUTPUT) {
    for await (const piece of pieces) dependencies.print(piece);
    return isIncomplete ? 1 : 0;
  }
  const signal = context.endInOrder();
  try {
    await writeFile(path, "new", untilAborted(pieces, signal));
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

/** An interrupted dump leaves no file behind. */
async function* untilAborted(
  pieces: FinishedDump["pieces"],
  signal: AbortSignal,
): AsyncIterable<string> {
  for await (const piece of pieces) {
    signal.throwIfAborted();
    yield piece;
  }
}

async function makeDump(
  dependencies: Dependencies,
  context: CommandContext,
): Promise<FinishedDump> {
  const { flags, configuration: { relay } } = context;
  if (namesObjects(flags)) return await dumpPlan(dependencies, context);
  const text = await askControlText(relay.controlSocket, "/dump");
  if (!text.startsWith(`{"kind":"${DUMP_KIND}"`)) {
    throw new ControlError(
      `Cannot dump kube-relay at '${relay.controlSocket}': the answer is no dump`,
    );
  }
  return { pieces: [text, "\n"], isIncomplete: false };
}

/** Dumps named objects and their plan, without a running process. */
async function dumpPlan(
  dependencies: Dependencies,
  context: CommandContext,
): Promise<FinishedDump> {
  const planned = await planNamedObjects(dependencies, context);
  const { clock, process: { kernelRelease } } = dependencies;
  const families = [...planned.plans.keys()];
  const { informers, configuration: { proxy: { networkPolicy } } } = planned;
  const tool = networkPolicy.mode === "iptables" ? "iptables" : "nftables";
  const dump = collectDump({ clock, kernelRelease }, {
    ...planned,
    families: families.map((family) => ({ family, quarantined: [] })),
    ...(networkPolicy.enabled && {
      policyKinds: new Map(POLICY_KINDS.map((spec) => [spec, informers])),
      controllers: { "network-policy": { tool, families } },
    }),
  });
  return { pieces: jsonPieces(dump, { clock }), isIncomplete: planned.isIncomplete };
}
