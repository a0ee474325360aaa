import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import type { WatchedPacket } from "../../../lib/proxy/packet_trace.ts";
import { kernelLogMonitor, parseKernelTraceLine } from "./kernel_log_monitor.ts";
import { PacketFollower } from "./packet_follower.ts";

/** From Linux 6.1, without options of TCP: a connection that nat rewrites, and a refused one. */
const LOG = String
  .raw`[   14.880000] TRACE: raw:OUTPUT:policy:2 IN= OUT=lo SRC=10.0.0.1 DST=10.96.0.1 LEN=60 TOS=0x00 PREC=0x00 TTL=64 ID=35465 DF PROTO=TCP SPT=43324 DPT=80 SEQ=435948170 ACK=0 WINDOW=65495 RES=0x00 SYN URGP=0 UID=0 GID=0 
[   14.880000] TRACE: nat:OUTPUT:rule:1 IN= OUT=lo SRC=10.0.0.1 DST=10.96.0.1 LEN=60 TOS=0x00 PREC=0x00 TTL=64 ID=35465 DF PROTO=TCP SPT=43324 DPT=80 SEQ=435948170 ACK=0 WINDOW=65495 RES=0x00 SYN URGP=0 UID=0 GID=0 
[   14.880000] TRACE: nat:KUBE-SERVICES:rule:1 IN= OUT=lo SRC=10.0.0.1 DST=10.96.0.1 LEN=60 TOS=0x00 PREC=0x00 TTL=64 ID=35465 DF PROTO=TCP SPT=43324 DPT=80 SEQ=435948170 ACK=0 WINDOW=65495 RES=0x00 SYN URGP=0 UID=0 GID=0 
[   14.880000] TRACE: filter:OUTPUT:policy:2 IN= OUT=lo SRC=10.0.0.1 DST=127.0.0.1 LEN=60 TOS=0x00 PREC=0x00 TTL=64 ID=35465 DF PROTO=TCP SPT=43324 DPT=8080 SEQ=435948170 ACK=0 WINDOW=65495 RES=0x00 SYN URGP=0 UID=0 GID=0 
[   15.180000] TRACE: nat:KUBE-SERVICES:return:2 IN= OUT=lo SRC=10.0.0.1 DST=10.96.0.2 LEN=60 TOS=0x00 PREC=0x00 TTL=64 ID=40976 DF PROTO=TCP SPT=46944 DPT=80 SEQ=2874008037 ACK=0 WINDOW=65495 RES=0x00 SYN URGP=0 UID=0 GID=0 
[   15.180000] TRACE: filter:OUTPUT:rule:1 IN= OUT=lo SRC=10.0.0.1 DST=10.96.0.2 LEN=60 TOS=0x00 PREC=0x00 TTL=64 ID=40976 DF PROTO=TCP SPT=46944 DPT=80 SEQ=2874008037 ACK=0 WINDOW=65495 RES=0x00 SYN URGP=0 UID=0 GID=0 
[   19.470000] TRACE: raw:PREROUTING:policy:1 IN=lo OUT= MAC=00:00:00:00:00:00:00:00:00:00:00:00:86:dd SRC=0000:0000:0000:0000:0000:0000:0000:0001 DST=0000:0000:0000:0000:0000:0000:0000:0001 LEN=49 TC=0 HOPLIMIT=64 FLOWLBL=806481 PROTO=UDP SPT=53897 DPT=53897 LEN=9 `
  .split("\n");

const SAVED = `*nat
[1:60] -A OUTPUT -j KUBE-SERVICES
[1:60] -A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 127.0.0.1:8080
COMMIT
*filter
[1:60] -A OUTPUT -d 10.96.0.2/32 -j REJECT --reject-with icmp-port-unreachable
COMMIT
`;

function packetTo(to: string): WatchedPacket {
  return {
    family: "IPv4",
    from: undefined,
    to: parseIpAddress(to),
    port: parsePort(80),
    protocol: "TCP",
    comesFrom: "this machine",
  };
}

/** The steps of a packet in the log, as reported at the end. */
async function stepsTo(to: string) {
  const commands = new FakeCommandRunner().on("iptables-legacy-save -c", { stdout: SAVED });
  const options = { table: "kube-relay-trace-7", save: "iptables-legacy-save" };
  const monitor = kernelLogMonitor({ commands }, packetTo(to), options);
  let beacons = 0;
  const follower = new PacketFollower({
    table: options.table,
    beaconPort: 53897,
    onBeacon: () => void beacons++,
    onSeen: () => {},
  });
  for (const line of LOG) for (const event of monitor.parse(line)) follower.take(event);
  assertEquals(beacons, 1);
  return await monitor.finish?.(follower.steps) ?? [];
}

Deno.test("parseKernelTraceLine() reads place, rule and packet", () => {
  assertEquals(parseKernelTraceLine(LOG[2]!), {
    table: "nat",
    chain: "KUBE-SERVICES",
    kind: "rule",
    number: 1,
    header: {
      source: parseIpAddress("10.0.0.1"),
      destination: parseIpAddress("10.96.0.1"),
      sourcePort: 43324,
      destinationPort: 80,
      id: 35465,
      leavesBy: "lo",
    },
  });
  assertEquals(parseKernelTraceLine(LOG[6]!)?.header.arrivedBy, "lo");
});

Deno.test("parseKernelTraceLine() accepts any text, and a line that is damaged anywhere", () => {
  assertEquals(parseKernelTraceLine("[ 2.7] IPVS: [mh] scheduler registered."), undefined);
  fc.assert(fc.property(fc.string(), (line) => void parseKernelTraceLine(line)));
  const damage = fc.tuple(fc.constantFrom(...LOG), fc.nat(300), fc.string({ maxLength: 4 }));
  fc.assert(fc.property(damage, ([line, at, text]) => {
    parseKernelTraceLine(line.slice(0, at) + text + line.slice(at + 2));
  }));
});

Deno.test("kernelLogMonitor() reports the rules of one packet with their text", async () => {
  const steps = await stepsTo("10.96.0.1");
  assertEquals(steps.map(({ place, rule, verdict }) => `${place}: ${verdict}: ${rule ?? ""}`), [
    "raw OUTPUT: policy: ",
    "nat OUTPUT: jump KUBE-SERVICES: -j KUBE-SERVICES",
    "nat KUBE-SERVICES: accept: -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT " +
    "--to-destination 127.0.0.1:8080",
    "filter OUTPUT: policy: ",
  ]);
  assertEquals(steps.at(-1)?.header?.destination, "127.0.0.1");
});

Deno.test("kernelLogMonitor() reports the rule that refused the packet", async () => {
  const steps = await stepsTo("10.96.0.2");
  assertEquals(steps.map(({ place, verdict }) => `${place}: ${verdict}`), [
    "nat KUBE-SERVICES: return",
    "filter OUTPUT: reject",
  ]);
});
