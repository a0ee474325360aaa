/**
 * What went through a Service, in a few words.
 *
 * @module
 */
import type { ServiceTraffic } from "../proxy/service_traffic.ts";

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"] as const;

/** E.g. `12 in all, 999 B in, 3.5 MB out`. */
export function trafficText(traffic: Readonly<ServiceTraffic>): string {
  const { bytesFromClients, bytesToClients, opened } = traffic;
  return `${opened} in all, ${sizeText(bytesFromClients)} in, ${sizeText(bytesToClients)} out`;
}

function sizeText(bytes: number): string {
  let [size, unit] = [bytes, 0];
  // Half a step before the unit is full: 999,950 would be written as 1000.0 kB.
  for (; size >= 999.95 && unit < UNITS.length - 1; unit++) size /= 1000;
  return `${unit === 0 ? size : size.toFixed(1)} ${UNITS[unit]}`;
}
