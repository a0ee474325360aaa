/**
 * Determines how a virtual server distributes connections: the node's settings and a Service's
 * annotations. Pure.
 *
 * @module
 */
import { IPVS_SCHEDULERS } from "../../lib/api/service_annotations.ts";
import type { ModeAnnotation, ModeAnnotations } from "../../lib/proxy/service_port.ts";

/** The names of schedulers, in the kernel's spelling. */
export const SCHEDULERS = IPVS_SCHEDULERS;

/** One of {@linkcode SCHEDULERS}. */
export type Scheduler = typeof SCHEDULERS[number];

/** kube-proxy's default. */
export const DEFAULT_SCHEDULER: Scheduler = "rr";

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

/** Maximum length of a quoted value in a message. */
const LONGEST_VALUE = 80;

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
 * settings. `flags` are those for `ipvsadm -b`, sorted. Unusable annotations are reported, unlike in
 * kube-router: as sentences without a full stop.
 */
export function schedulingOf(
  annotations: ModeAnnotations | undefined,
  nodeScheduler: Scheduler,
): {
  readonly scheduler: Scheduler;
  readonly flags: readonly string[];
  readonly problems: readonly string[];
} {
  const problems: string[] = [];
  const refuse = (value: string, name: string, expected: string) =>
    problems.push(refusalOf(value, name, expected));
  const [name, value = ""] = valueOf(annotations, SCHEDULER_ANNOTATIONS);
  const own = name && tryParseScheduler(value);
  if (name && !own) refuse(value, name, `expected one of ${SCHEDULERS.join(", ")}`);
  const scheduler = own || nodeScheduler;
  const known = FLAGS[scheduler];
  const [flagsName, flagsValue = ""] = valueOf(annotations, FLAGS_ANNOTATIONS);
  if (flagsName === undefined || known === undefined) {
    if (flagsName !== undefined) {
      problems.push(`Cannot use annotation ${flagsName}: scheduler ${scheduler} has no flags`);
    }
    // kube-proxy sets it: without it all connections of a client go to one endpoint.
    return { scheduler, flags: scheduler === "mh" ? ["mh-port"] : [], problems };
  }
  const names = [...known.values()];
  const words = flagsValue.split(",").map((each) => each.trim()).filter(Boolean)
    .map((word) => known.get(word) ?? word);
  const unknown = words.find((word) => !names.includes(word));
  if (unknown !== undefined) {
    refuse(unknown, flagsName, `scheduler ${scheduler} has ${names.join(" and ")}`);
  }
  return { scheduler, flags: names.filter((flag) => words.includes(flag)).sort(), problems };
}

/** Why the value of an annotation is not used, as a sentence without a full stop. */
export function refusalOf(value: string, name: string, expected: string): string {
  // An annotation may have 256 KiB.
  const quote = value.length > LONGEST_VALUE ? `${value.slice(0, LONGEST_VALUE)}…` : value;
  return `Cannot use '${quote}' of annotation ${name}: ${expected}`;
}

/** The first of these annotations that is there. */
export function valueOf(
  annotations: ModeAnnotations | undefined,
  names: readonly ModeAnnotation[],
): readonly [name?: ModeAnnotation, value?: string | undefined] {
  const name = names.find((each) => annotations?.[each] !== undefined);
  return name === undefined ? [] : [name, annotations?.[name]];
}
