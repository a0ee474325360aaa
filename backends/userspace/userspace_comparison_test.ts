import { assert, assertEquals } from "@std/assert";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";
import { systemNetwork } from "../../lib/os/network.ts";
import type { Port } from "../../lib/net/port.ts";
import { kernelSockets, parseSockets } from "./userspace_comparison.ts";

const TCP = `\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0
   1: 0100007F:1F91 0200007F:0050 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0
10000: 0100600A:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0
`;
const UDP6 = `\
  sl  local_address                         remote_address                        st tx_queue
  12: 000000000000000000000000010000FD:0035 00000000000000000000000000000000:0000 07 00000000:0
  13: B80D0120000000000000000001000000:0035 00000000000000000000000000000000:0000 07 00000000:0
  14: 00000000000000000000000001000000:0035 00000000000000000000000001000000:1234 01 00000000:0
`;

Deno.test("parseSockets() gives sockets that wait for clients, and no connections", () => {
  assertEquals([...parseSockets(TCP, "TCP")], ["127.0.0.1:8080/TCP", "10.96.0.1:80/TCP"]);
  assertEquals([...parseSockets(UDP6, "UDP")], ["[::fd00:1]:53/UDP", "[2001:db8::1]:53/UDP"]);
  for (const bad of ["", "\0", "   0: 0100007F", TCP.replaceAll("0A", "ZZ"), "x".repeat(100_000)]) {
    assertEquals([...parseSockets(bad, "TCP")], []);
  }
});

Deno.test("kernelSockets() returns nothing if a file cannot be read", async () => {
  const commands = new FakeCommandRunner()
    .on("cat /proc/net/tcp6", { stdout: "" })
    .on("cat /proc/net/udp6", { code: 1, stderr: "cat: No such file or directory" });
  assertEquals(await kernelSockets(commands, "IPv6"), undefined);
  assertEquals(commands.calls.map(({ line }) => line), [
    "cat /proc/net/tcp6",
    "cat /proc/net/udp6",
  ]);
});

Deno.test("kernelSockets() has the sockets that this process opens", async () => {
  const place = { hostname: parseIpAddress("127.0.0.1"), port: 0 as Port };
  const tcp = systemNetwork.listenTcp(place);
  const udp = systemNetwork.listenUdp(place);
  try {
    const sockets = await kernelSockets(systemCommandRunner, "IPv4");
    for (const [socket, protocol] of [[tcp, "TCP"], [udp, "UDP"]] as const) {
      const key = `127.0.0.1:${socket.addr.port}/${protocol}`;
      assert(new Set<string>(sockets).has(key), key);
    }
  } finally {
    tcp.close();
    udp.close();
  }
});
