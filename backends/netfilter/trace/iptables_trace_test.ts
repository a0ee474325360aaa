import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { systemNetwork } from "../../../lib/os/network.ts";
import type { WatchedPacket } from "../../../lib/proxy/packet_trace.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { startCounterWatch } from "./iptables_trace.ts";

const PACKET: WatchedPacket = {
  family: "IPv4",
  from: undefined,
  to: parseIpAddress("10.96.0.1"),
  port: parsePort(80),
  protocol: "TCP",
  comesFrom: "elsewhere",
};

/** Rules for two Services, one refused; counts of the jump, and of each of the two. */
const saved = (jump: number, web: number, refused: number) =>
  `*filter
[${jump}:60] -A FORWARD -j KUBE-SERVICES
[${web}:60] -A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j REJECT
[${refused}:60] -A KUBE-SERVICES -d 10.96.0.2/32 -p tcp -m tcp --dport 80 -j DROP
COMMIT
`;

function start(commands: FakeCommandRunner) {
  const edges = { clock: systemClock, network: systemNetwork, commands, id: "7" };
  const { signal } = new AbortController();
  return startCounterWatch(edges, PACKET, "iptables-legacy-save", "Because", signal);
}

Deno.test("startCounterWatch() sees the packet by a rule that names its destination", async () => {
  let counts: Parameters<typeof saved> = [1, 1, 1];
  const commands = new FakeCommandRunner()
    .on("iptables-legacy-save -c", () => ({ stdout: saved(...counts) }));
  await using watch = await start(commands);
  let isSeen = false;
  const seen = watch.seen.then(() => void (isSeen = true));
  // A packet to another Service does not count.
  counts = [2, 1, 2];
  const before = commands.calls.length;
  await eventually("it has looked twice", () => commands.calls.length >= before + 2);
  assertEquals(isSeen, false);
  counts = [3, 2, 2];
  await seen;
  const path = await watch.path({});
  assertEquals(path.ending, "rejected");
  assertEquals(path.steps.map(({ place, verdict }) => `${place}: ${verdict}`), [
    "filter FORWARD: jump KUBE-SERVICES",
    "filter KUBE-SERVICES: reject",
  ]);
  assertEquals(path.notes[0], "Because");
});

Deno.test("startCounterWatch() reports the destination of the one rule that matched", async () => {
  let counts = [0, 0];
  const dnat = () =>
    "*nat\n" + `[${counts[0]! + counts[1]!}:60] -A PREROUTING -j KUBE-SERVICES\n` +
    [1, 2].map((pod) =>
      `[${counts[pod - 1]}:60] -A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT ` +
      `--to-destination 10.0.0.${pod}:8080\n`
    ).join("");
  const commands = new FakeCommandRunner()
    .on("iptables-legacy-save -c", () => ({ stdout: dnat() }));
  await using watch = await start(commands);
  assertEquals((await watch.path({})).turnedTo, undefined);
  counts = [0, 1];
  assertEquals((await watch.path({})).turnedTo, "10.0.0.2:8080");
  // One of the two packets was foreign.
  counts = [1, 1];
  assertEquals((await watch.path({})).turnedTo, undefined);
});
