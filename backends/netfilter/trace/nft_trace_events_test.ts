import fc from "fast-check";
import { assertEquals } from "@std/assert";
import { PacketFollower } from "./nft_trace_events.ts";

/** Printed by nft 1.0.6. */
const RECORDED = String
  .raw`trace id cc67f778 ip kube-relay nat-output packet: oif "v0" ip saddr 10.1.0.1 ip daddr 10.0.0.9 ip dscp cs0 ip ecn not-ect ip ttl 64 ip id 47170 ip length 60 tcp sport 45664 tcp dport 80 tcp flags == syn tcp window 64240 
trace id cc67f778 ip kube-relay nat-output rule jump services (verdict jump services)
trace id cc67f778 ip nat KUBE-SERVICES rule meta l4proto tcp ip daddr 10.0.0.9  tcp dport 80 counter packets 12 bytes 60 jump KUBE-SVC-ABC # handle 7 (verdict jump KUBE-SVC-ABC)
trace id 08d6b4c5 ip filter OUTPUT policy accept meta mark 0x00004000 
trace id fa6ad3a8 ip own o unknown rule handle 3 (verdict continue)
trace id df7c1ab7 ip6 own o packet: iif "lo" @ll,0,112 0x800 ip6 saddr ::1 ip6 daddr ::1 ip6 dscp cs0 ip6 ecn not-ect ip6 hoplimit 64 ip6 flowlabel 761802 ip6 length 9 udp sport 5555 udp dport 5555 udp length 9 @th,64,8 0x78 `
  .split("\n");

Deno.test("PacketFollower accepts a line that is damaged anywhere", () => {
  const damage = fc.tuple(fc.constantFrom(...RECORDED), fc.nat(300), fc.string({ maxLength: 6 }));
  fc.assert(fc.property(damage, ([line, at, text]) => {
    const follower = new PacketFollower(OWN, 5555);
    follower.take(line.slice(0, at));
    follower.take(line.slice(0, at) + text + line.slice(at + 2));
  }));
});

const OWN = "kube-relay-trace-7";

/** Takes lines as nft prints them, without the words before the packet's number. */
function follow(lines: string) {
  const follower = new PacketFollower(OWN, 5555);
  const about = lines.trim().split("\n").map((line) => follower.take(`trace id ${line.trim()}`));
  return { follower, about };
}

const MARKED =
  `aa ip ${OWN} output packet: oif "v0" ip saddr 10.1.0.1 ip daddr 10.0.0.9 ip id 7 tcp sport 4000 tcp dport 80
  aa ip ${OWN} output rule ip daddr 10.0.0.9 meta nftrace set 1 (verdict continue)
  aa ip ${OWN} output policy accept`;

Deno.test("PacketFollower takes the packet that was marked, not the beacon or a foreign packet", () => {
  const { follower, about } = follow(`
    bb ip ${OWN} output packet: oif "lo" ip saddr 127.0.0.1 ip daddr 127.0.0.1 ip id 1 udp sport 5555 udp dport 5555
    bb ip ${OWN} output rule udp sport 5555 meta nftrace set 1 (verdict continue)
    bb ip nat OUTPUT policy accept
    ${MARKED}
    cc ip kube-relay-trace-8 output rule meta nftrace set 1 (verdict continue)
    cc ip nat OUTPUT rule jump OTHERS (verdict jump OTHERS)
    aa ip nat OUTPUT rule jump KUBE-SERVICES (verdict jump KUBE-SERVICES)`);
  assertEquals(about.filter((each) => each === "beacon").length, 1);
  assertEquals(about.indexOf("packet"), 4);
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
  const { follower, about } = follow(`${MARKED}\n${MARKED.replaceAll("aa ip", "ab ip")}`);
  assertEquals([follower.header?.id, about.lastIndexOf("packet")], [7, 2]);
});
