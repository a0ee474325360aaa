/**
 * Tries to make a dummy device, and takes it away again.
 *
 * @module
 */
import { NOT_PERMITTED, probeResult, RIGHTS } from "../netfilter/probe/feature.ts";
import type { ProbeResult } from "../../lib/proxy/service_mode.ts";
import {
  firstLine,
  type ProbeDependencies,
  saysNotPermitted,
  tryTool,
} from "../netfilter/probe/try_tool.ts";
import { DUMMY } from "./ipvs_features.ts";

/** Of one name for all runs; the kernel allows 15 characters. */
const SCRATCH_DEVICE = "kr-probe0";

const ADD = `link add ${SCRATCH_DEVICE} type dummy\n`;
const REMOVE = `link del ${SCRATCH_DEVICE}\n`;

/** Throws only when the caller gave up; the device is removed then too. */
export async function tryDummyDevice(
  dependencies: ProbeDependencies,
  { signal }: { readonly signal?: AbortSignal | undefined } = {},
): Promise<ProbeResult> {
  const run = (stdin: string, options: { signal?: AbortSignal | undefined } = {}) =>
    tryTool(dependencies, ["ip", "-batch", "-"], { ...options, stdin });
  let known = false;
  try {
    let answer = await run(ADD + REMOVE, { signal });
    if (answer.kind === "ended" && answer.err.includes("File exists")) {
      // A killed probe left it.
      await run(REMOVE);
      answer = await run(ADD + REMOVE, { signal });
    }
    known = answer.kind === "ended" || answer.kind === "missing";
    if (answer.kind !== "ended") return probeResult(DUMMY, { reason: answer.reason });
    const { code, err } = answer;
    if (code === 0) return probeResult(DUMMY);
    if (saysNotPermitted(err)) return probeResult(RIGHTS, { reason: NOT_PERMITTED });
    const reason = firstLine(err) || `ip ended with ${code} and no word why`;
    return probeResult(DUMMY, { reason });
  } finally {
    if (!known) await run(REMOVE);
  }
}
