import type { Packet } from "../../lib/proxy/packet.ts";
import type { AffinityEntry } from "../../lib/proxy/packet_explanation.ts";
import type { NftRunner } from "../netfilter/nft/nft_runner.ts";
import { classidText } from "../netfilter/nft/table_listing.ts";
import { BLOCK_MASK, type Slots, slotText } from "./slots.ts";

const SECONDS = { d: 86_400, h: 3_600, m: 60, s: 1 } as const;
/** `expires 2h59m58s996ms : 8bf1:2a` */
const ELEMENT = /\bexpires (\S+) : (\S+)/;

/**
 * Queries one element. `slots` are the slots of the ServicePort in the table. Rejects in IPv6,
 * where only the kernel can compute the hash of a client.
 */
export async function findAffinity(
  runner: Pick<NftRunner, "element">,
  slots: Slots,
  { from, to }: Pick<Packet, "from" | "to">,
): Promise<AffinityEntry | undefined> {
  if (to.includes(":")) {
    throw new Error("in IPv6 clients are remembered by a hash, and cannot be asked for");
  }
  const [any] = slots.values();
  if (any === undefined) return undefined;
  const key = `${slotText((any & BLOCK_MASK) >>> 0)} . ${from.address}`;
  const [, expires = "", printed = ""] =
    ELEMENT.exec(await runner.element("affinity", key) ?? "") ?? [];
  const slot = classidText(printed) ?? printed;
  const [endpoint] = [...slots].find(([, each]) => slotText(each) === slot) ?? [];
  return endpoint && { endpoint, expiresInSeconds: secondsOf(expires) };
}

function secondsOf(text: string): number {
  let seconds = 0;
  for (const [, number, unit] of text.matchAll(/(\d+)([dhms])(?!s)/g)) {
    seconds += Number(number) * SECONDS[unit as keyof typeof SECONDS];
  }
  return seconds;
}
