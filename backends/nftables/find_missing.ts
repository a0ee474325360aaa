/**
 * Which of what carries a packet the kernel does not have. Of elements only the first is asked for,
 * without which no packet comes to the others, and of chains only their names: nft reads all elements
 * before it tells of a rule.
 *
 * @module
 */
import type { DataPlaneDifference } from "../../lib/proxy/data_plane_difference.ts";
import type { PacketCarrier } from "../../lib/proxy/packet_explanation.ts";
import type { NftRunner } from "../netfilter/nft/nft_runner.ts";

/** Throws an NftError. */
export async function findMissingElements(
  runner: Pick<NftRunner, "chains" | "hasElement">,
  carriers: readonly PacketCarrier[],
): Promise<readonly DataPlaneDifference[]> {
  const front = carriers.find(({ object }) => object === "map element");
  const [chains, isThere] = await Promise.all([
    runner.chains(),
    front ? runner.hasElement(front.name, front.text.split(" : ", 1)[0] ?? "") : true,
  ]);
  const names = new Set(carriers.filter(({ object }) => object === "rule").map(({ name }) => name));
  const differences: DataPlaneDifference[] = [...names].filter((name) => !chains.has(name))
    .map((name) => ({ object: "chain", name, kind: "missing" }));
  if (front && !isThere) {
    const { object, name, text } = front;
    differences.push({ object, name, kind: "missing", wanted: text });
  }
  return differences;
}
