/**
 * From the start of kube-relay to all Services programmed, on the real API machinery.
 *
 * @module
 */
import { runInBenchNamespace } from "../bench_namespace.ts";
import type { StartFigures, StartTask } from "./run_start.ts";

const PROGRAM = new URL("./run_start.ts", import.meta.url).pathname;

/** Measures in its own namespace. Throws with the output of the program if it fails. */
export async function measureStart(task: StartTask): Promise<StartFigures> {
  return await runInBenchNamespace(PROGRAM, [JSON.stringify(task)]);
}
