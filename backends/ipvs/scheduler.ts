/**
 * Determines how a virtual server distributes connections: the node's settings and a Service's
 * annotations. Pure.
 *
 * @module
 */
import type { ModeAnnotation, ModeAnnotations } from "../../lib/proxy/service_port.ts";

/** The schedulers of ip_vs since Linux 4.18, by their names in the kernel. */
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

/** The scheduler of a virtual server. */
interface Scheduling {
  readonly scheduler: Scheduler;
  /** The flags for `ipvsadm -b`, sorted. */
  readonly flags: readonly string[];
}

/** The result of a Service's annotations. */
export interface SchedulingChoice extends Scheduling {
  /** Annotations that could not be used, as sentences without a full stop. */
  readonly problems: readonly string[];
}

/** The annotations for the scheduler, in order of precedence; kube-router's is accepted too. */
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
 * The flags of schedulers, by their numbers in the kernel. `fallback` skips an endpoint of weight 0,
 * and `port` uses the client's port too.
 */
const FLAGS: Readonly<Partial<Record<Scheduler, ReadonlyMap<string, string>>>> = {
  mh: new Map([["flag-1", "mh-fallback"], ["flag-2", "mh-port"]]),
  sh: new Map([["flag-1", "sh-fallback"], ["flag-2", "sh-port"]]),
};

/** kube-proxy sets these: without them all connections of a client go to one endpoint. */
const DEFAULT_FLAGS: Readonly<Partial<Record<Scheduler, readonly string[]>>> = { mh: ["mh-port"] };
/** Maximum length of a quoted value in a message. */
const LONGEST_VALUE = 80;
const NO_FLAGS: readonly string[] = [];

/**
 * Parses the name of a scheduler, case-insensitively; `undefined` = unknown. Empty means
 * kube-proxy's default.
 */
export function tryParseScheduler(name: string): Scheduler | undefined {
  const wanted = name.trim().toLowerCase();
  return wanted === "" ? DEFAULT_SCHEDULER : SCHEDULERS.find((each) => each === wanted);
}

/**
 * Returns how the virtual servers of a Service distribute: by its annotations, else by the node's
 * settings. Unusable annotations are reported, unlike in kube-router.
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
