/**
 * The text of `ip -force -batch -`: what is written to it, and what it answers.
 *
 * @module
 */
import type { Cidr } from "../../lib/net/cidr.ts";
import type { IpAddress } from "../../lib/net/ip_address.ts";

/** Why one line of a batch was not carried out. */
export interface IpFailure {
  /** `exists`: it was there already; `absent`: what should be removed is not there. */
  readonly kind: "exists" | "absent" | "notPermitted" | "other";
  /** What `ip` said. */
  readonly message: string;
}

/**
 * Adds an address to `lo` so that it never becomes the source of the node's own connections: an IPv4
 * one by its scope, an IPv6 one (whose scope the kernel derives) by being deprecated from the start.
 * Without `nodad` an IPv6 address is tentative at first and cannot be bound.
 */
export function addAddressLine(address: IpAddress): string {
  return address.includes(":")
    ? `addr add ${address}/128 dev lo nodad preferred_lft 0`
    : `addr add ${address}/32 dev lo scope host`;
}

/** Removes an address from `lo`. */
export function deleteAddressLine(address: IpAddress): string {
  return `addr del ${address}/${address.includes(":") ? 128 : 32} dev lo`;
}

/** Makes every address of a range local (AnyIP). */
export function addRouteLine(range: Cidr): string {
  return `route add local ${range} dev lo`;
}

/** Takes back {@linkcode addRouteLine}. */
export function deleteRouteLine(range: Cidr): string {
  return `route del local ${range} dev lo`;
}

/**
 * Reads which lines (counted from 1) failed from the errors of a batch. `ip` writes the reason first,
 * then `Command failed -:LINE`.
 */
export function parseBatchFailures(stderr: string): Map<number, IpFailure> {
  const failures = new Map<number, IpFailure>();
  let reason: string[] = [];
  for (const line of stderr.split("\n")) {
    const failed = /^Command failed -:(\d+)$/.exec(line.trim());
    if (failed) {
      failures.set(Number(failed[1]), ipFailure(reason.join("; ")));
      reason = [];
    } else if (line.trim() !== "") reason.push(line.trim());
  }
  return failures;
}

/** Classes what `ip` said: the errno text of older kernels, or the words that newer ones send along. */
export function ipFailure(message: string): IpFailure {
  const kind = /File exists|already assigned/i.test(message)
    ? "exists"
    : /Cannot assign requested address|No such process|address not found/i.test(message)
    ? "absent"
    : /Operation not permitted/i.test(message)
    ? "notPermitted"
    : "other";
  return { kind, message: message === "" ? "ip gave no reason" : message };
}
