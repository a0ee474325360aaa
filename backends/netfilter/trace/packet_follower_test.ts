import { assertEquals } from "@std/assert";
import { parseNftTraceLine } from "./nft_monitor_text.ts";
import { PacketFollower } from "./packet_follower.ts";

const OWN = "kube-relay-trace-7";

/** Takes lines as nft prints them, without the words before the packet's number. */
function follow(lines: string) {
  const counts = { beacons: 0, seen: 0 };
  const follower = new PacketFollower({
    table: OWN,
    beaconPort: 5555,
    onBeacon: () => void counts.beacons++,
    onSeen: () => void counts.seen++,
  });
  for (const line of lines.trim().split("\n")) {
    const event = parseNftTraceLine(`trace id ${line.trim()}`);
    if (event) follower.take(event);
  }
  return { ...counts, follower };
}

const MARKED =
  `aa ip ${OWN} output packet: oif "v0" ip saddr 10.1.0.1 ip daddr 10.0.0.9 ip id 7 tcp sport 4000 tcp dport 80
  aa ip ${OWN} output rule ip daddr 10.0.0.9 meta nftrace set 1 (verdict continue)
  aa ip ${OWN} output policy accept`;

Deno.test("PacketFollower takes the packet that was marked, not the beacon or a foreign packet", () => {
  const { follower, beacons, seen } = follow(`
    bb ip ${OWN} output packet: oif "lo" ip saddr 127.0.0.1 ip daddr 127.0.0.1 ip id 1 udp sport 5555 udp dport 5555
    bb ip ${OWN} output rule udp sport 5555 meta nftrace set 1 (verdict continue)
    bb ip nat OUTPUT policy accept
    ${MARKED}
    cc ip kube-relay-trace-8 output rule meta nftrace set 1 (verdict continue)
    cc ip nat OUTPUT rule jump OTHERS (verdict jump OTHERS)
    aa ip nat OUTPUT rule jump KUBE-SERVICES (verdict jump KUBE-SERVICES)`);
  assertEquals([beacons, seen], [1, 1]);
  assertEquals(follower.steps.map(({ place }) => place), ["ip nat OUTPUT"]);
  assertEquals(follower.steps[0]?.header?.sourcePort, 4000);
});

Deno.test("PacketFollower reports a header again only after a change", () => {
  const { follower } = follow(`${MARKED}
    aa ip nat OUTPUT rule dnat to 10.1.0.2 (verdict accept)
    aa ip nat POSTROUTING packet: oif "v0" ip saddr 10.1.0.1 ip daddr 10.1.0.2 ip id 7 tcp sport 4000 tcp dport 80
    aa ip nat POSTROUTING rule masquerade (verdict accept)
    aa ip nat POSTROUTING policy accept`);
  assertEquals(follower.steps.map(({ header }) => header?.destination), [
    "10.0.0.9",
    "10.1.0.2",
    undefined,
  ]);
});

Deno.test("PacketFollower continues with the packet if it comes in again with another number", () => {
  const { follower } = follow(`${MARKED}
    aa ip nat OUTPUT policy accept
    dd ip ${OWN} prerouting packet: iif "lo" ip saddr 10.1.0.1 ip daddr 10.1.0.1 ip id 7 tcp sport 4000 tcp dport 8080
    dd ip filter INPUT rule drop (verdict drop)
    ee ip ${OWN} prerouting packet: iif "lo" ip saddr 10.1.0.1 ip daddr 10.1.0.1 ip id 8 tcp sport 4001 tcp dport 80
    ee ip filter INPUT policy accept`);
  assertEquals(follower.steps.map(({ place }) => place), ["ip nat OUTPUT", "ip filter INPUT"]);
});

Deno.test("PacketFollower marks the first packet only", () => {
  const { follower, seen } = follow(`${MARKED}\n${MARKED.replaceAll("aa ip", "ab ip")}`);
  assertEquals([seen, follower.header?.id], [1, 7]);
});
