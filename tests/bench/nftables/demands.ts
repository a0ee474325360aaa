import type { Gate } from "../gates.ts";
import type { ConnectFigures } from "../measure_connects.ts";
import type { StartFigures } from "../start/run_start.ts";
import type { Spread } from "../statistics.ts";
import type { ChurnFigures } from "./churn.ts";
import type { KernelMemory } from "./kernel_memory.ts";
import { CHANGE_KINDS, CHANGE_NAMES, type TableChanges } from "./measure_changes.ts";
import type { BaselineFigures, LoadFigures } from "./measure_loads.ts";
import type { CountingFigures } from "./measure_counting.ts";
import type { OwnCost } from "./own_cost.ts";
import { sizeName, type TableSize } from "./table_model.ts";

/** The sizes that are compared. */
const SMALLER = 10_000;
const LARGER = 44_000;
/** A full load, as a share of that of kube-proxy's layout. */
const LOAD_SHARE = 1 / 15;
const LOAD_GROWTH = 5.5;
const CHANGE_GROWTH = 1.5;
/** Noise: two namespaces of the same size differ by some hundredths. */
const CONNECT_GROWTH = 1.15;
const COUNTED_GROWTH = 1.3;
const RESIDENT_MIB: Readonly<Record<number, number>> = { [SMALLER]: 150, [LARGER]: 350 };
/** At the median, with a period of almost nothing between two syncs; and over the period otherwise. */
const PROMPT_MS = 200;
const OVER_PERIOD_MS = 100;
const COUNT = { digits: 0, slack: 0 };

/** The share of the machine that other programs may use while times are judged. */
export const FOREIGN_CORES = 0.5;

/** Limits on full loads. In CPU time, because other processes use the machine too. */
export function loadGates(
  loads: readonly LoadFigures[],
  baselines: readonly BaselineFigures[],
): readonly Gate[] {
  const cpu = (all: readonly LoadFigures[], services: number) =>
    all.find(({ size }) => isSize(size, services))?.cpuMs.median ?? NaN;
  const baseline = baselines.find(({ size }) => isSize(size, SMALLER))?.cpuMs ?? NaN;
  return [
    {
      name: `load of ${SMALLER} / kube-proxy's layout`,
      value: cpu(loads, SMALLER) / baseline,
      atMost: LOAD_SHARE,
      digits: 3,
    },
    {
      name: `load of ${LARGER} / of ${SMALLER}`,
      value: cpu(loads, LARGER) / cpu(loads, SMALLER),
      atMost: LOAD_GROWTH,
    },
  ];
}

/** Limits on single changes: their cost must not depend on the number of Services. */
export function changeGates([few, many]: readonly TableChanges[]): readonly Gate[] {
  return CHANGE_KINDS.flatMap((kind): readonly Gate[] => {
    const [small, large] = [few?.changes[kind], many?.changes[kind]];
    const name = `${CHANGE_NAMES[kind]}: `;
    const sizes = `among ${many?.size.services} / among ${few?.size.services}`;
    return [
      {
        name: `${name}lines ${sizes}`,
        value: (large?.lines.max ?? NaN) / (small?.lines.max ?? NaN),
        atMost: 1,
        slack: 0,
      },
      {
        name: `${name}the tool's CPU ${sizes}`,
        value: (large?.cpuMs.median ?? NaN) / (small?.cpuMs.median ?? NaN),
        atMost: CHANGE_GROWTH,
      },
    ];
  });
}

/** Limits on kube-relay's share. */
export function costGates(
  own: readonly OwnCost[],
  { loads, changes }: {
    readonly loads: readonly LoadFigures[];
    readonly changes: readonly TableChanges[];
  },
): readonly Gate[] {
  return own.flatMap(({ services, loadCpuMs, changeCpuMs }): readonly Gate[] => {
    const load = loads.find(({ size }) => isSize(size, services))?.cpuMs.median;
    const change = changes.find(({ size }) => isSize(size, services))?.changes;
    const least = change && Math.min(...CHANGE_KINDS.map((kind) => change[kind].cpuMs.median));
    const name = (what: string) => `our CPU / the tool's, ${what} ${services}`;
    return [
      ...(load === undefined
        ? []
        : [{ name: name("load of"), value: loadCpuMs / load, atMost: 1 }]),
      ...(least === undefined
        ? []
        : [{ name: name("a change among"), value: changeCpuMs / least, atMost: 1 }]),
    ];
  });
}

/** Demands on first packets, among the most Services against the fewest. */
export function connectGates(few: ConnectFigures, many: ConnectFigures): readonly Gate[] {
  return Object.entries(many.medians).map(([name, median]) => ({
    name: `first packet, ${name}: among ${many.services} / among ${few.services}`,
    value: median / (few.medians[name] ?? NaN),
    atMost: CONNECT_GROWTH,
  }));
}

/** The kernel must not keep more memory than with kube-proxy's layout. */
export function memoryGates(memory: readonly KernelMemory[]): readonly Gate[] {
  return memory.filter(({ baseline }) => baseline !== undefined).map((
    { size, ours, baseline },
  ) => ({
    name: `kernel memory of ${sizeName(size)} / kube-proxy's layout`,
    value: ours / baseline!,
    atMost: 1,
  }));
}

/** Limits on counting: it must be cheap enough to be always on. */
export function countingGates(
  { services, connects: [without, counting], toService, toOther }: CountingFigures,
): readonly Gate[] {
  const name = (what: string) => `--service-counters, ${services}: ${what}, with / without`;
  const sent = ([before, after]: readonly [Spread, Spread]) => after.median / before.median;
  return [
    ...Object.entries(without.medians).map(([what, median]) => ({
      name: name(`first packet, ${what}`),
      value: (counting.medians[what] ?? NaN) / median,
      atMost: CONNECT_GROWTH,
    })),
    { name: name("datagram to a Service"), value: sent(toService), atMost: COUNTED_GROWTH },
    { name: name("datagram to no Service"), value: sent(toOther), atMost: COUNTED_GROWTH },
  ];
}

/**
 * Limits on a start on real API machinery: on the memory that remains after V8 has collected
 * garbage.
 */
export function startGates({ services, restingMiB }: StartFigures): readonly Gate[] {
  const atMost = RESIDENT_MIB[services];
  if (atMost === undefined || restingMiB === undefined) return [];
  return [{ name: `MiB resident with ${services} Services`, value: restingMiB, atMost, digits: 0 }];
}

/** Demands on a thousand changes a second, by the shortest time between two syncs in milliseconds. */
export function churnGates(figures: ChurnFigures, periodMs: number): readonly Gate[] {
  const { medianMs, lost, backlog, task, foreignCores } = figures;
  const name = (what: string) => `1,000 changes/s, period ${task.minSyncPeriod}: ${what}`;
  const isPrompt = periodMs + OVER_PERIOD_MS < PROMPT_MS;
  return [
    {
      name: name("median ms from event to kernel"),
      value: medianMs,
      atMost: isPrompt ? PROMPT_MS : periodMs + OVER_PERIOD_MS,
      digits: 0,
      // Waits for a processor that other programs use are not counted.
      ...(foreignCores > FOREIGN_CORES && {
        onlyAim: `not judged: others used ${foreignCores.toFixed(1)} cores`,
      }),
    },
    { name: name("events lost"), value: lost, atMost: 0, ...COUNT },
    { name: name("backlog at the end"), value: backlog, atMost: 0, ...COUNT },
  ];
}

function isSize({ services, endpoints }: TableSize, wanted: number): boolean {
  return services === wanted && endpoints === 2;
}
