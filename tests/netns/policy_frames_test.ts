/** Frames with VLAN tags between the ports of a bridge, with the table that docs/network_policy.md names. */
import { assertEquals } from "@std/assert";
import { POLICY_BACKENDS } from "../../backends/policy/mod.ts";
import { eventually } from "../support/eventually.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { type Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { loadNftables } from "../support/stages/nftables_tools.ts";
import { addressOf, PolicyScene } from "../support/stages/policy_scene.ts";

const PAGE = new URL("../../docs/network_policy.md", import.meta.url);

/** The headers between the hardware addresses and the packet: a type, after a tag of 0 or two. */
const HEADERS = {
  untagged: [0x08, 0x00],
  "802.1Q": [0x81, 0x00, 0, 0, 0x08, 0x00],
  "802.1ad": [0x88, 0xa8, 0, 0, 0x08, 0x00],
  "two tags": [0x81, 0x00, 0, 0, 0x81, 0x00, 0, 0, 0x08, 0x00],
};

/** A packet of UDP to port 9000, without a checksum of its payload. */
function udpPacket(source: string, destination: string, text: string): readonly number[] {
  const payload = [...new TextEncoder().encode(`${text}\n`)];
  const addresses = [source, destination].flatMap((address) => address.split(".").map(Number));
  const head = [0x45, 0, 0, 28 + payload.length, 0, 1, 0x40, 0, 64, 17];
  const words = [...head, 0, 0, ...addresses];
  let sum = 0;
  for (let at = 0; at < words.length; at += 2) sum += (words[at]! << 8) | words[at + 1]!;
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  const checksum = [~sum >> 8 & 0xff, ~sum & 0xff];
  const udp = [0x30, 0x39, 9000 >> 8, 9000 & 0xff, 0, 8 + payload.length, 0, 0];
  return [...head, ...checksum, ...addresses, ...udp, ...payload];
}

async function hardwareAddress(namespace: Namespace): Promise<readonly number[]> {
  const text = await namespace.ip("link show dev eth0");
  return /ether ([0-9a-f:]+)/.exec(text)![1]!.split(":").map((byte) => parseInt(byte, 16));
}

const test = testNeeding("frames with tags", [
  ...netnsRequirements(),
  ...["nft", "socat"].map(program),
]);
test("a frame with a tag evades the rules, and the table of the documentation drops it", async () => {
  await using scene = await PolicyScene.create(POLICY_BACKENDS.nftables);
  scene.setPolicy("web", { podSelector: { matchLabels: { app: "web" } } });
  await scene.sync();
  const { node, localPods: [web, db] } = scene.cluster;
  const ends = [await hardwareAddress(web), await hardwareAddress(db)].flat();
  const [from, to] = [addressOf("db", "IPv4"), addressOf("web", "IPv4")];
  const inbox = web.start("socat", ["-u", "UDP4-RECV:9000", "STDOUT"]);
  await eventually(
    "the socket is open",
    async () => (await web.output("ss", ["-Huna", "sport", "=", ":9000"])) !== "",
  );
  const arrivals = async () => {
    for (const [name, header] of Object.entries(HEADERS)) {
      const frame = [...ends, ...header, ...udpPacket(from, to, name)];
      const octal = frame.map((byte) => `\\${byte.toString(8).padStart(3, "0")}`).join("");
      await db.output("sh", ["-c", `printf '${octal}' | socat -u - INTERFACE:eth0`]);
    }
    // What the node sends always arrives, and last.
    await node.output("sh", ["-c", `echo end | socat -u - UDP4-DATAGRAM:${to}:9000`]);
    const found: string[] = [];
    while (found.at(-1) !== "end") found.push(await inbox.nextLine());
    return found.slice(0, -1);
  };
  assertEquals(await arrivals(), ["802.1Q", "802.1ad", "two tags"]);
  const [, table = ""] = /```\n( *table bridge .*?)```/s.exec(await Deno.readTextFile(PAGE)) ??
    [];
  await loadNftables(node, table);
  assertEquals(await arrivals(), []);
});
