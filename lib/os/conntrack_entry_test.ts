import { assertEquals, assertRejects } from "@std/assert";
import fc from "fast-check";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { parsePort } from "../net/port.ts";
import { findConntrackEntry, parseConntrackEntry } from "./conntrack_entry.ts";

const TCP = "tcp      6 118 TIME_WAIT src=10.1.0.1 dst=10.0.0.9 sport=45664 dport=80 " +
  "src=10.1.0.2 dst=10.1.0.1 sport=8080 dport=45664 [ASSURED] mark=0 use=1";
const UDP = "udp      17 29 src=fd00::1 dst=fd00::9 sport=4 dport=53 [UNREPLIED] " +
  "src=fd00::2 dst=fd00::1 sport=5353 dport=4 mark=0 use=1";

const QUERY = {
  family: "IPv4",
  protocol: "TCP",
  from: parseIpAddress("10.1.0.1"),
  sourcePort: 45664,
  to: parseIpAddress("10.0.0.9"),
  port: parsePort(80),
} as const;

Deno.test("parseConntrackEntry() reads both directions", () => {
  assertEquals(parseConntrackEntry(TCP), {
    original: {
      source: parseIpAddress("10.1.0.1"),
      destination: parseIpAddress("10.0.0.9"),
      sourcePort: 45664,
      destinationPort: 80,
    },
    reply: {
      source: parseIpAddress("10.1.0.2"),
      destination: parseIpAddress("10.1.0.1"),
      sourcePort: 8080,
      destinationPort: 45664,
    },
    state: "TIME_WAIT",
  });
  assertEquals(parseConntrackEntry(UDP)?.reply.sourcePort, 5353);
  assertEquals(parseConntrackEntry(UDP)?.state, undefined);
});

Deno.test("parseConntrackEntry() accepts any text", () => {
  assertEquals(
    parseConntrackEntry("conntrack v1.4.7 (conntrack-tools): 0 flow entries"),
    undefined,
  );
  fc.assert(fc.property(fc.string(), (line) => void parseConntrackEntry(line)));
});

Deno.test("findConntrackEntry() asks for one connection, and gives the reason why it can't", async () => {
  const commands = new FakeCommandRunner().on("conntrack", { stdout: `${TCP}\n` });
  assertEquals((await findConntrackEntry(commands, QUERY))?.state, "TIME_WAIT");
  assertEquals(
    commands.calls[0]?.line,
    "conntrack -L -f ipv4 -p tcp --orig-dst 10.0.0.9 --orig-port-dst 80 --orig-src 10.1.0.1 " +
      "--orig-port-src 45664",
  );
  commands.on("conntrack", {
    code: 1,
    stderr: "conntrack v1.4.7 (conntrack-tools): Operation failed: sorry\n",
  });
  await assertRejects(() => findConntrackEntry(commands, QUERY), Error, "Operation failed: sorry");
});
