import type { ChangeListener, LoopListener } from "../../../lib/app/change_listener.ts";

/** A listener that takes note of nothing but what a test wants to know. */
export function quietChanges(listeners: Partial<ChangeListener> = {}): ChangeListener {
  const quiet: LoopListener<unknown, unknown> = {
    seen() {},
    drained() {},
    planned() {},
    on() {},
  };
  return {
    followServices: () => quiet,
    followPolicies: () => quiet,
    follow: () => quiet,
    driftFound() {},
    flowsCleaned() {},
    healthChanged() {},
    configurationChanged() {},
    ...listeners,
  };
}
