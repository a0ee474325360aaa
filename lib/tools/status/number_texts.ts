/** Numbers, durations and times as people read them. Pure. */
import type { ServerLoad } from "../../proxy/service_mode.ts";
import type { TrafficFigures } from "../../proxy/service_traffic.ts";

/** Returns e.g. `1 read, 12 removed chains`; the names of operations are plurals such as `removedChains`. */
export function operationsText(operations: Readonly<Record<string, number>>): string {
  return Object.entries(operations)
    .map(([name, count]) => `${count} ${wordsOf(count === 1 ? singularOf(name) : name)}`)
    .join(", ") || "nothing to do";
}

function wordsOf(name: string): string {
  return name.replace(/[a-z][A-Z]/g, ([last, first]) => `${last} ${first!.toLowerCase()}`);
}

function singularOf(noun: string): string {
  return noun.replace(/ies$/, "y").replace(/sses$/, "ss").replace(/([^s])s$/, "$1");
}

/** Returns e.g. `12 in all, 999 B in, 3.5 MB out`, or `999 B in 4 packets, 3.5 MB out in 70`. */
export function trafficText(traffic: TrafficFigures): string {
  const { bytesFromClients, bytesToClients, opened } = traffic;
  const [sizeIn, sizeOut] = [sizeText(bytesFromClients), sizeText(bytesToClients)];
  const { packetsFromClients, packetsToClients } = traffic;
  if (packetsFromClients !== undefined && packetsToClients !== undefined) {
    return `${sizeIn} in ${packetsFromClients} packets, ${sizeOut} out in ${packetsToClients}`;
  }
  return `${opened === undefined ? "" : `${opened} in all, `}${sizeIn} in, ${sizeOut} out`;
}

/**
 * Returns the texts of the figures that are not 0: `3 active`, `1 inactive`, `2 new/s`, `1.2 kB/s
 * in`, `88.1 kB/s out`.
 */
export function loadNotes({ active, inactive, rates }: ServerLoad): readonly string[] {
  const notes: readonly (readonly [value: number, text: string])[] = [
    [active, `${active} active`],
    [inactive, `${inactive} inactive`],
    ...(rates === undefined ? [] : [
      [rates.connections, `${rates.connections} new/s`],
      [rates.bytesIn, `${sizeText(rates.bytesIn)}/s in`],
      [rates.bytesOut, `${sizeText(rates.bytesOut)}/s out`],
    ] as const),
  ];
  return notes.filter(([value]) => value > 0).map(([, text]) => text);
}

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"] as const;

/** Returns e.g. `999 B` or `3.5 MB`. */
export function sizeText(bytes: number): string {
  let [size, unit] = [bytes, 0];
  // Half a step before the unit is full: 999,950 would be written as 1000.0 kB.
  for (; size >= 999.95 && unit < UNITS.length - 1; unit++) size /= 1000;
  return `${unit === 0 ? size : size.toFixed(1)} ${UNITS[unit]}`;
}

/** A duration in milliseconds: `4.2 ms`, `312 ms`, `3.2 s`, `4m12s`. */
export function durationText(ms: number): string {
  if (ms < 10) return `${Math.round(ms * 10) / 10} ms`;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 99_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)}m${seconds % 60}s`;
}

/** An age in milliseconds by its two largest units: `3h12m`, `45s`. */
export function ageText(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m${seconds % 60}s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours}h${minutes % 60}m` : `${Math.floor(hours / 24)}d${hours % 24}h`;
}

/** Formats moments in one time zone. */
export interface TimeTexts {
  readonly day: (at: string) => string;
  readonly time: (at: string) => string;
}

/** Formats as `2026-01-31` and `14:03:22`. The default is the machine's time zone. */
export function timeTexts(timeZone: string | undefined): TimeTexts {
  // Swedish writes dates and times as ISO 8601 does.
  const zone = timeZone === undefined ? {} : { timeZone };
  const day = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", ...zone });
  const time = new Intl.DateTimeFormat("sv-SE", { timeStyle: "medium", ...zone });
  return { day: (at) => day.format(new Date(at)), time: (at) => time.format(new Date(at)) };
}
