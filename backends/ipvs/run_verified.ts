import { unlikeExpected } from "./applied_servers.ts";
import type { IpvsBatch } from "./diff.ts";
import type { IpvsRunner } from "./ipvs_runner.ts";
import type { IpvsLayout } from "./layout.ts";
import type { SeenServer } from "./proc_ip_vs.ts";
import { StepRefusal } from "./step_refusal.ts";
import type { IpvsStep } from "./steps.ts";
import { looksForeign, type TakenServers } from "./taken_servers.ts";

/** The expected servers after a step, and the means to read the actual ones. */
interface Verification {
  readonly runner: Pick<IpvsRunner, "run" | "servers">;
  readonly taken: TakenServers;
  readonly layout: Pick<IpvsLayout, "server">;
  readonly expected: IpvsBatch["servers"];
}

/**
 * Carries out a step and verifies the result by reading: neither the messages of `ipvsadm -R` nor
 * their order are reliable. Throws a StepRefusal that names the servers that differ.
 */
export async function runVerified(step: IpvsStep, context: Verification): Promise<void> {
  const { runner, layout, expected } = context;
  try {
    await runner.run(step);
  } catch (error) {
    if (!(error instanceof StepRefusal) || step.tool !== "ipvsadm") throw error;
    const made = [...expected].flatMap(([key, server]) => server ? [key] : []);
    const seen = await runner.servers(made);
    noteTaken(step, seen, context);
    const servers = unlikeExpected(seen, {
      expected,
      wanted: (key) => layout.server(key)?.server,
    });
    if (servers.length === 0) return;
    const { message, details } = error;
    throw new StepRefusal(message, { ...details, servers, cause: error });
  }
}

/** Notes servers that already exist; the next write reads and changes them. */
function noteTaken(
  step: Extract<IpvsStep, { tool: "ipvsadm" }>,
  seen: readonly SeenServer[],
  { layout, taken }: Verification,
): void {
  const made = new Set(
    step.operations.flatMap((each) => each.kind === "addServer" ? [each.server.key] : []),
  );
  for (const each of seen) {
    const wanted = made.has(each.key) ? layout.server(each.key) : undefined;
    if (wanted && looksForeign(each, wanted)) taken.note(each.key, wanted);
  }
}
