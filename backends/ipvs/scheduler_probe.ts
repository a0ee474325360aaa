import {
  firstLine,
  type ProbeDependencies,
  saysNotPermitted,
  tryTool,
} from "../netfilter/probe/try_tool.ts";

/** An address for documentation (RFC 5737), and kube-proxy's port. */
const SCRATCH_SERVER = "198.51.100.0:20000";

/** The result of a probe. */
type SchedulerFound =
  | { readonly kind: "tried"; readonly reason?: string; readonly detail?: string }
  | { readonly kind: "no ipvs"; readonly reason: string }
  | { readonly kind: "not permitted" };

const REMOVE = `-D -t ${SCRATCH_SERVER}\n`;

/** Throws only when the caller gave up; the server is removed then too. */
export async function tryScheduler(
  dependencies: ProbeDependencies,
  { scheduler, signal }: { readonly scheduler: string; readonly signal?: AbortSignal | undefined },
): Promise<SchedulerFound> {
  // Much cheaper than `ipvsadm -Ln` where there are many; Deno itself can't open /proc.
  const servers = await tryTool(dependencies, ["cat", "/proc/net/ip_vs"], { signal });
  const inUse = servers.kind === "ended" &&
    servers.out.split("\n").some((line) =>
      /^(TCP|UDP|SCTP|FWM) /.test(line) && line.split(/\s+/)[2] === scheduler
    );
  if (inUse) return { kind: "tried", detail: "in use by a virtual server" };
  return await tryServer(dependencies, { scheduler, signal });
}

async function tryServer(
  dependencies: ProbeDependencies,
  { scheduler, signal }: { readonly scheduler: string; readonly signal: AbortSignal | undefined },
): Promise<SchedulerFound> {
  const run = (stdin: string, options: { signal?: AbortSignal | undefined } = {}) =>
    tryTool(dependencies, ["ipvsadm", "-R"], { ...options, stdin });
  const text = `-A -t ${SCRATCH_SERVER} -s ${scheduler}\n${REMOVE}`;
  let known = false;
  try {
    let answer = await run(text, { signal });
    // A killed probe left it; this run has removed it.
    if (answer.kind === "ended" && answer.err.includes("already exists")) {
      answer = await run(text, { signal });
    }
    known = answer.kind === "ended" || answer.kind === "missing";
    if (answer.kind !== "ended") return { kind: "tried", reason: answer.reason };
    return foundIn(answer, scheduler);
  } finally {
    if (!known) await run(REMOVE);
  }
}

/** The exit code is that of the last line only, so any message counts as a failure. */
function foundIn(
  { code, err }: { readonly code: number; readonly err: string },
  scheduler: string,
): SchedulerFound {
  if (code === 0 && err.trim() === "") return { kind: "tried" };
  if (saysNotPermitted(err)) return { kind: "not permitted" };
  if (/initialize ipvs|Protocol not available/.test(err)) {
    return { kind: "no ipvs", reason: "the kernel has no IPVS (ipvsadm: Protocol not available)" };
  }
  if (/Scheduler.*not found/.test(err)) {
    return { kind: "tried", reason: `the kernel has no scheduler '${scheduler}'` };
  }
  return { kind: "tried", reason: firstLine(err) || `ipvsadm ended with ${code}, no word why` };
}
