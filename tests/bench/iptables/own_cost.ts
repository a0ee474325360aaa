// deno-lint-ignore-file no-console -- its output is what it is for
/**
 * Runs kube-relay's share of a full load, from plans of Services to the tool's input, and prints
 * the cost. A separate process, so that memory and compiled code are those of a first sync.
 *
 * @module
 */
import process from "node:process";
import { renderIptables } from "../../../backends/iptables/render.ts";
import { testProxyPlan } from "../../support/builders/service_plans.ts";
import { BENCH_SHARED, benchServicePlan } from "../bench_services.ts";
import { benchOptions } from "./bench_options.ts";

/** The output, as JSON. */
export interface OwnCost {
  readonly cpuMs: number;
  readonly residentMiB: number;
}

/** Runs the process. */
export async function measureOwnCost(services: number): Promise<OwnCost> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--quiet", "--no-prompt", import.meta.url, String(services)],
  }).output();
  if (code !== 0) {
    throw new Error(`Cannot measure ${services}: ${new TextDecoder().decode(stderr)}`);
  }
  return JSON.parse(new TextDecoder().decode(stdout));
}

if (import.meta.main) {
  const plans = Array.from(
    { length: Number(Deno.args[0]) },
    (_, index) => benchServicePlan(index),
  );
  const plan = testProxyPlan(plans, { shared: BENCH_SHARED });
  const before = process.cpuUsage();
  const { batch } = renderIptables(plan, benchOptions(plans.length));
  const encoder = new TextEncoder();
  let bytes = 0;
  for (const piece of batch.text()) bytes += encoder.encode(piece).length;
  const { user, system } = process.cpuUsage(before);
  if (bytes === 0) throw new Error("Nothing was rendered");
  const cost: OwnCost = {
    cpuMs: (user + system) / 1000,
    residentMiB: Deno.memoryUsage().rss / 2 ** 20,
  };
  console.log(JSON.stringify(cost));
}
