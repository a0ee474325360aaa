import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { systemNetwork } from "../../../lib/os/network.ts";
import type { WatchedPacket } from "../../../lib/proxy/packet_trace.ts";
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

function start(commands: FakeCommandRunner) {
  const edges = { clock: systemClock, network: systemNetwork, commands, id: "7" };
  const { signal } = new AbortController();
  return startCounterWatch(edges, PACKET, "iptables-legacy-save", "Because", signal);
}

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
