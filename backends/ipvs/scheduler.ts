/**
 * How a virtual server chooses among its endpoints: what the node says, and what a Service says for
 * itself. Pure.
 *
 * @module
 */
import type { ModeAnnotation, ModeAnnotations } from "../../lib/proxy/mode_annotations.ts";

/** The schedulers that ip_vs has had since Linux 4.18, by the names that it knows them by. */
export const SCHEDULERS = [
  "rr",
  "lc",
  "dh",
  "sh",
  "sed",
  "nq",
  "wrr",
  "wlc",
  "lblc",
  "lblcr",
  "mh",
] as const;

/** One of {@linkcode SCHEDULERS}. */
export type Scheduler = typeof SCHEDULERS[number];

/** kube-proxy's default. */
export const DEFAULT_SCHEDULER: Scheduler = "rr";

/** What a virtual server is told. */
interface Scheduling {
  readonly scheduler: Scheduler;
  /** As `ipvsadm -b` has them; sorted. */
  readonly flags: readonly string[];
}

/** What the annotations of a Service come to. */
export interface SchedulingChoice extends Scheduling {
  /** What could not be used of them, as sentences without a full stop. */
  readonly problems: readonly string[];
}

/** The annotation for the scheduler; kube-router's is taken as well, ours first. */
const SCHEDULER_ANNOTATIONS: readonly ModeAnnotation[] = [
  "kube-relay.io/ipvs-scheduler",
  "kube-router.io/service.scheduler",
];

/** The annotation for its flags, separated by commas. */
const FLAGS_ANNOTATIONS: readonly ModeAnnotation[] = [
  "kube-relay.io/ipvs-scheduler-flags",
  "kube-router.io/service.schedflags",
];

/**
 * The flags that schedulers know, by the numbers that the kernel has for them. `fallback` passes over
 * an endpoint that is away, `port` takes the client's port into account.
 */
const FLAGS: Readonly<Partial<Record<Scheduler, ReadonlyMap<string, string>>>> = {
  mh: new Map([["flag-1", "mh-fallback"], ["flag-2", "mh-port"]]),
  sh: new Map([["flag-1", "sh-fallback"], ["flag-2", "sh-port"]]),
};

/** What kube-proxy sets: without it all connections of a client go to one endpoint. */
const DEFAULT_FLAGS: Readonly<Partial<Record<Scheduler, readonly string[]>>> = { mh: ["mh-port"] };
/** Of what a Service says, in a message. */
const LONGEST_VALUE = 80;
const NO_FLAGS: readonly string[] = [];

/** The scheduler of a name, in whatever case; `undefined` = there is none. Empty is kube-proxy's default. */
export function tryParseScheduler(name: string): Scheduler | undefined {
  const wanted = name.trim().toLowerCase();
  return wanted === "" ? DEFAULT_SCHEDULER : SCHEDULERS.find((each) => each === wanted);
}

/**
 * How the virtual servers of a Service distribute: as it says itself, else as the node does. What it
 * says and cannot be had is told, not passed over in silence as by kube-router.
 */
export function schedulingOf(
  annotations: ModeAnnotations | undefined,
  nodeScheduler: Scheduler,
): SchedulingChoice {
  const problems: string[] = [];
  const named = valueOf(annotations, SCHEDULER_ANNOTATIONS);
  const own = named && tryParseScheduler(named.value);
  if (named && own === undefined) {
    problems.push(
      `Cannot use '${cut(named.value)}' of annotation ${named.name}: expected one of ${
        SCHEDULERS.join(", ")
      }`,
    );
  }
  const scheduler = own ?? nodeScheduler;
  const flags = flagsOf(annotations, { scheduler, problems });
  return { scheduler, flags: flags ?? DEFAULT_FLAGS[scheduler] ?? NO_FLAGS, problems };
}

/** `undefined` = the Service has no valid ones. */
function flagsOf(
  annotations: ModeAnnotations | undefined,
  { scheduler, problems }: { readonly scheduler: Scheduler; readonly problems: string[] },
): readonly string[] | undefined {
  const named = valueOf(annotations, FLAGS_ANNOTATIONS);
  if (named === undefined) return undefined;
  const known = FLAGS[scheduler];
  if (known === undefined) {
    problems.push(`Cannot use annotation ${named.name}: scheduler ${scheduler} has no flags`);
    return undefined;
  }
  const names = [...known.values()];
  const flags = new Set<string>();
  const unknown: string[] = [];
  for (const word of named.value.split(",").map((each) => each.trim()).filter(Boolean)) {
    const flag = known.get(word) ?? names.find((name) => name === word);
    if (flag !== undefined) flags.add(flag);
    else unknown.push(word);
  }
  // An annotation may have 256 KiB of them.
  if (unknown[0] !== undefined) {
    problems.push(
      `Cannot use '${cut(unknown[0])}' of annotation ${named.name}: scheduler ${scheduler} has ${
        names.join(" and ")
      }`,
    );
  }
  return [...flags].sort();
}

function cut(text: string): string {
  return text.length > LONGEST_VALUE ? `${text.slice(0, LONGEST_VALUE)}…` : text;
}

function valueOf(
  annotations: ModeAnnotations | undefined,
  names: readonly ModeAnnotation[],
): { readonly name: string; readonly value: string } | undefined {
  const name = names.find((each) => annotations?.[each] !== undefined);
  return name === undefined ? undefined : { name, value: annotations?.[name] ?? "" };
}
