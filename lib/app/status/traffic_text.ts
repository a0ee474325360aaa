/**
 * What went through a Service, or goes through one of its addresses now, in a few words.
 *
 * @module
 */
import type { ServerLoad } from "../../proxy/service_mode.ts";
import type { TrafficFigures } from "../../proxy/service_traffic.ts";

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"] as const;

/** E.g. `12 in all, 999 B in, 3.5 MB out`, or `999 B in 4 packets, 3.5 MB out in 70`. */
export function trafficText(traffic: TrafficFigures): string {
  const { bytesFromClients, bytesToClients, opened } = traffic;
  const [sizeIn, sizeOut] = [sizeText(bytesFromClients), sizeText(bytesToClients)];
  const { packetsFromClients, packetsToClients } = traffic;
  if (packetsFromClients !== undefined && packetsToClients !== undefined) {
    return `${sizeIn} in ${packetsFromClients} packets, ${sizeOut} out in ${packetsToClients}`;
  }
  return `${opened === undefined ? "" : `${opened} in all, `}${sizeIn} in, ${sizeOut} out`;
}

/** E.g. `3 active`, `1 inactive`, `2 new/s`, `1.2 kB/s in`, `88.1 kB/s out`; nothing of what is 0. */
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

function sizeText(bytes: number): string {
  let [size, unit] = [bytes, 0];
  // Half a step before the unit is full: 999,950 would be written as 1000.0 kB.
  for (; size >= 999.95 && unit < UNITS.length - 1; unit++) size /= 1000;
  return `${unit === 0 ? size : size.toFixed(1)} ${UNITS[unit]}`;
}
