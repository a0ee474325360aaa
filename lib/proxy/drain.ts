import type { EndpointsChangeTracker } from "./endpoints_changes.ts";
import type { ObjectProblem } from "../api/problem.ts";
import {
  applyChanges,
  type DirtyState,
  type MutableProxyState,
  type StateChanges,
} from "./proxy_state.ts";
import type { ServiceChangeTracker } from "./service_changes.ts";
import type { ServiceKey, ServicePortKey } from "./service_port_name.ts";

/** The trackers of one IP family. */
export interface Trackers {
  readonly services: ServiceChangeTracker;
  readonly endpoints: EndpointsChangeTracker;
}

/** The dependencies of {@linkcode drainInSlices} besides the trackers. */
interface DrainOptions {
  /** Changes other than those of Services and endpoints. */
  readonly changes?: Omit<StateChanges, "services" | "endpoints">;
  /** Called and awaited between slices. Must not reject. */
  readonly pause: () => Promise<void> | undefined;
  /** Called at the end: later changes belong to the next drain. */
  readonly onDrained?: () => void;
}

/** The result of a drain. */
interface DrainedChanges {
  readonly dirty: DirtyState;
  readonly services: ReadonlySet<ServiceKey>;
  readonly triggerTimes: readonly number[];
  readonly touchesUdp: boolean;
  readonly problems: readonly ObjectProblem[];
}

/** Number of Services drained between two pauses: about 1 ms of work. */
const SLICE_SIZE = 256;

/**
 * Drains both trackers into the state, with pauses. Changes that arrive during a pause are drained,
 * too. No other caller may write the state in between.
 */
export async function drainInSlices(
  trackers: Trackers,
  state: MutableProxyState,
  { changes, pause, onDrained }: DrainOptions,
): Promise<DrainedChanges> {
  const keys = new Set<ServicePortKey>();
  const names = new Set<ServiceKey>();
  const triggerTimes: number[] = [];
  const problems: ObjectProblem[] = [];
  // Only this call can change these: the calls below pass no Node, ranges or addresses.
  const { shared, everything } = applyChanges(state, changes ?? {});
  let touchesUdp = false;
  for (;;) {
    const services = trackers.services.drain(SLICE_SIZE);
    const endpoints = trackers.endpoints.drain(SLICE_SIZE);
    for (const key of applyChanges(state, { services, endpoints }).keys) keys.add(key);
    for (const name of [...services.services, ...endpoints.services]) names.add(name);
    // Not push(...list): some 100,000 items are too many arguments.
    for (const times of endpoints.triggerTimes.values()) {
      for (const time of times) triggerTimes.push(time);
    }
    for (const problem of services.problems) problems.push(problem);
    for (const problem of endpoints.problems) problems.push(problem);
    touchesUdp ||= endpoints.touchesUdp;
    if (trackers.services.pending === 0 && trackers.endpoints.undrained === 0) break;
    await pause();
  }
  onDrained?.();
  return {
    dirty: { keys, shared, everything },
    services: names,
    triggerTimes,
    touchesUdp,
    problems,
  };
}
