import type { ControlRoutes } from "./control_server.ts";
import { serviceKey } from "../../proxy/service_port_name.ts";
import { answerFlow } from "./answer_flow.ts";
import type { ObservedRun } from "../../app/run/run_tools.ts";
import type { Clock } from "../../os/clock.ts";
import { RunningComparison } from "../diff/compare_running.ts";
import { explainRunning } from "../explain/explain_running.ts";

/** Most names for the completion of a shell. */
const MOST_NAMES = 1000;

/** Returns the routes by path. None changes anything or delays a sync. */
export function serviceRoutes(clock: Clock, run: ObservedRun): ControlRoutes {
  const comparison = new RunningComparison({ clock }, run);
  return {
    "/services": (query) => serviceNames(clock, run, query.get("prefix") ?? ""),
    // A separate function, so that its exceptions become rejections.
    "/flow": async (query) => await answerFlow({ clock, families: run.services.families }, query),
    "/difference": (query, signal) => comparison.answer(query, signal),
    "/explain": (query) => explainRunning(clock, run, query),
  };
}

/** Returns the sorted names of Services with a prefix, limited in number. */
async function serviceNames(
  clock: Clock,
  { services }: Pick<ObservedRun, "services">,
  prefix: string,
): Promise<readonly string[]> {
  const names = new Set<string>();
  let seen = 0;
  for (const { pipeline } of services.families) {
    for (const { name } of pipeline.plan.services.values()) {
      if (++seen % 256 === 0) await clock.yieldToEventLoop();
      const text = serviceKey(name);
      if (text.startsWith(prefix)) names.add(text);
      if (names.size >= MOST_NAMES) break;
    }
  }
  return [...names].sort();
}
