/**
 * A packet of SCTP, for machines on which no program speaks it.
 *
 * @module
 */

/** An INIT that asks for an association, with its checksum. */
export function sctpInit(
  { from, to }: { readonly from: number; readonly to: number },
): readonly number[] {
  const header = [from >> 8, from & 255, to >> 8, to & 255, 0, 0, 0, 0, 0, 0, 0, 0];
  // Type, flags, length; a tag; room for 64 KiB; one stream each way; the first number.
  const init = [1, 0, 0, 20, 1, 2, 3, 4, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1];
  const sum = crc32c([...header, ...init]);
  const checksum = [sum & 255, (sum >>> 8) & 255, (sum >>> 16) & 255, sum >>> 24];
  return [...header.slice(0, 8), ...checksum, ...init];
}

function crc32c(bytes: readonly number[]): number {
  let sum = 0xffff_ffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0x82f6_3b78 : 0);
  }
  return ~sum >>> 0;
}
