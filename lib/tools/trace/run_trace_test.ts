import { assertEquals, assertThrows } from "@std/assert";
import { parseIpAddress } from "../../net/ip_address.ts";
import { parsePort } from "../../net/port.ts";
import type { PacketSender } from "../../proxy/packet.ts";
import type { ExplainedPacket } from "../explain/explain_report.ts";
import { PacketEndsError } from "../explain/packet_ends.ts";
import { choosePacket, seenFrom } from "./run_trace.ts";

const NODE = parseIpAddress("192.168.0.2");
const POD = parseIpAddress("10.0.0.9");

function explained(kind: PacketSender["kind"], to: string, port = 80): ExplainedPacket {
  const packet = {
    from: { kind, address: kind === "node" ? NODE : POD },
    to: parseIpAddress(to),
    port: parsePort(port),
    protocol: "TCP",
  } as const;
  const family = to.includes(":") ? "IPv6" : "IPv4";
  return { family, packet } as ExplainedPacket;
}

function choose(from: string, ...packets: readonly ExplainedPacket[]) {
  return choosePacket({ from, to: "ns1/web", packets }).watched;
}

Deno.test("choosePacket() sends from the node, and lets the kernel choose the source", () => {
  const packet = explained("node", "10.96.0.1");
  const { from, to, comesFrom } = choose("node", packet);
  assertEquals([from, to, comesFrom], [undefined, packet.packet.to, "this machine"]);
  assertEquals(choose("192.168.0.2", packet).from, NODE);
});

Deno.test("choosePacket() waits for packets of other senders", () => {
  const pod = choose("ns1/10.0.0.9", explained("pod", "10.96.0.1"));
  assertEquals([pod.comesFrom, pod.from], ["elsewhere", POD]);
  const anyClient = choose("outside", explained("outside", "10.96.0.1"));
  assertEquals([anyClient.comesFrom, anyClient.from], ["elsewhere", undefined]);
});

Deno.test("choosePacket() chooses the first IP family, and refuses several ports", () => {
  const both = [explained("node", "10.96.0.1"), explained("node", "fd00::1")];
  assertEquals(choose("node", ...both).family, "IPv4");
  assertThrows(
    () => choose("node", ...both, explained("node", "10.96.0.1", 443)),
    PacketEndsError,
    "may be 10.96.0.1:80/TCP, 10.96.0.1:443/TCP; name one",
  );
});

Deno.test("seenFrom() names the sender and the interface", () => {
  const seen = { address: "203.0.113.7", arrivedBy: "eth0" };
  assertEquals(seenFrom("outside", seen), "203.0.113.7@eth0");
  assertEquals(seenFrom("ns1/10.0.0.9", { ...seen, arrivedBy: undefined }), "ns1/10.0.0.9");
  assertEquals(seenFrom("10.0.0.9@cni0", seen), "10.0.0.9@cni0");
});
