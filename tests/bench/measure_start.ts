/**
 * From the start of kube-relay to all Services programmed, on the real API machinery.
 *
 * @module
 */
import type { BackendMode } from "../../lib/proxy/backend.ts";
import { runInBenchNamespace } from "./bench_namespace.ts";
import type { StartFigures } from "./start.ts";

const PROGRAM = new URL("./start.ts", import.meta.url).pathname;

/** Measures in its own namespace. Throws with the output of the program if it fails. */
export async function measureStart(mode: BackendMode, services: number): Promise<StartFigures> {
  return await runInBenchNamespace(PROGRAM, [mode, String(services)]);
}
